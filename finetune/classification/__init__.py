"""Tasks on one or two texts: classification and regression."""
