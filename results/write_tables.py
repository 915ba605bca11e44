"""Writes the tables and numbers of README.md and of the site from the result files.

``python results/write_tables.py`` rewrites the pages; with ``--check`` it exits with 1 where a page is stale.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT))  # for those who have the source tree but no installed package

from results.tables.pages import renewed_pages  # noqa: E402
from sbmt.command import run_command  # noqa: E402
from sbmt.experiments.files import write_bytes  # noqa: E402


def main() -> int:
    """Rewrites or checks every page."""
    stale = []
    for page, text, new in renewed_pages(ROOT):
        if new != text:
            stale.append(page.name)
            if "--check" not in sys.argv:
                write_bytes(page, new.encode())
    if stale and "--check" in sys.argv:
        print(f"stale: {', '.join(stale)}; run python results/write_tables.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    run_command(lambda: sys.exit(main()), "write_tables")
