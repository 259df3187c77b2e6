"""Checkpoints from one format into another: what convert_checkpoint.py is made of."""
