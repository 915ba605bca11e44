"""How well fitted masks replace the full attention of a trained network, against other masks of the same density."""
