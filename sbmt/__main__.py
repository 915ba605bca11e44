"""Makes ``python -m sbmt`` equivalent to the installed command ``sbmt``."""

from sbmt.experiments.cli import main

main()
