"""Copies the notebooks, without their outputs, into a folder for a learner to work in.

python notebooks/copies.py FOLDER

What a learner has is never overwritten: to start a notebook afresh, delete its copy and run this again.
"""

import sys
from pathlib import Path

import nbformat

FOLDER = Path(__file__).resolve().parent


def main() -> None:
    target = Path(sys.argv[1])
    target.mkdir(exist_ok=True)
    for path in sorted(FOLDER.glob("[0-9]*.ipynb")):
        copy = target / path.name
        if not copy.exists():
            notebook = nbformat.read(path, as_version=4)
            for cell in notebook.cells:
                if cell.cell_type == "code":
                    cell.outputs, cell.execution_count = [], None
            nbformat.write(notebook, copy)
    print(f"Your copies are in {target}/; to start one afresh, delete it and run this again.")


if __name__ == "__main__":
    main()
