"""``python -m sbmt.cli``, for those who have the source tree but no installed command."""

from sbmt.cli import main

main()
