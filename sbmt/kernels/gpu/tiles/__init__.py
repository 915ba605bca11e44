"""Attention over all pairs, tile by tile, with a mask that is drawn where it is used."""
