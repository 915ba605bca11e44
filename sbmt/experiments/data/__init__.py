"""Data of the tasks, independent of models."""
