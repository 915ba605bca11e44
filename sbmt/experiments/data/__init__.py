"""Data for every task, independent of any model."""
