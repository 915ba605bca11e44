"""Measurement scripts. Most of them write ``results/NAME.json`` when run as ``python results/measure/NAME.py``."""
