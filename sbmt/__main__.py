"""``python -m sbmt`` does what the installed command ``sbmt`` does."""

from sbmt.experiments.cli import main

main()
