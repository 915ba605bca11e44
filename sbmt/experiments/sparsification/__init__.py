"""Experiments that replace full attention in a trained network by fitted masks, and by other masks of equal density."""
