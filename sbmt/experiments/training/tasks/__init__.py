"""Tasks that models are trained on: the settings of a run on each."""
