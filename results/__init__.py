"""Measurements, with one JSON file per question, and the code that writes them into the pages of the site."""
