"""Tokenizer, Transformer encoder, optimizer and checkpoint names; knows neither pre-training nor tasks."""
