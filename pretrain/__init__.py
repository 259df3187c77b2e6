"""Pre-training: examples, input pipeline, masking, generators, objectives."""
