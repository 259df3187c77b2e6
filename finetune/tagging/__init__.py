"""Tasks that give every word a tag."""
