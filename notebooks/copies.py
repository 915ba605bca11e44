"""Copies the notebooks without their outputs into a folder that learners can work in.

python notebooks/copies.py FOLDER

Existing copies are never overwritten: to start a notebook again, delete its copy and repeat the command.
"""

import sys
from pathlib import Path

import nbformat

FOLDER = Path(__file__).resolve().parent


def main() -> None:
    target = Path(sys.argv[1])
    target.mkdir(exist_ok=True)
    for path in sorted(FOLDER.glob("*.ipynb")):
        copy = target / path.name
        if not copy.exists():
            notebook = nbformat.read(path, as_version=4)
            for cell in notebook.cells:
                if cell.cell_type == "code":
                    cell.outputs, cell.execution_count = [], None
            nbformat.write(notebook, copy)
    print(f"Your copies are in {target}/; to start one again, delete it and repeat the command.")


if __name__ == "__main__":
    main()
