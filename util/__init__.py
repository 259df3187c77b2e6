"""What both scripts share: the training loop, devices, files, messages."""
