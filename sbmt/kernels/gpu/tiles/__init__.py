"""Attention over all pairs, tile by tile, whose mask is drawn where it is used."""
