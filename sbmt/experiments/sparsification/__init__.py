"""How well fitted masks stand for the full attention of a trained network, against other masks with as many edges."""
