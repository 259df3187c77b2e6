"""Fine-tuning: tasks, their features, heads and scores, and the run that trains and evaluates them."""
