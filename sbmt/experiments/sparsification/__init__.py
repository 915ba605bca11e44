"""Experiments that replace the full attention of a trained network by fitted masks, and by others of equal density."""
