"""What a trained model says of text: pseudo-log-likelihoods, replaced tokens, fillers, vectors."""
