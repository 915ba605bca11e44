"""Data of the tasks; knows no model."""
