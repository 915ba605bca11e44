"""``python -m sbmt``, for those who have the source tree but no installed command."""

from sbmt.experiments.cli import main

main()
