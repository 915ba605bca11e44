"""Measurement scripts. Most write ``results/NAME.json`` when run as ``python results/measure/NAME.py``."""
