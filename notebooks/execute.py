"""Executes notebooks in place; executing them twice gives the same bytes.

python notebooks/execute.py                 all of them
python notebooks/execute.py notebooks/00*   some
python notebooks/execute.py --check         execute nothing; verify what is on disk
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TextIO

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

FOLDER = Path(__file__).resolve().parent
LARGEST_OUTPUTS = 1_000_000  # bytes of a notebook's file
KEPT_LANGUAGE_INFO = ("file_extension", "mimetype", "name", "pygments_lexer")  # no versions
VOLATILE_CELL_METADATA = ("ExecuteTime", "collapsed", "execution", "scrolled")


class NotebookError(Exception):
    """An error that names the notebook and, if possible, the cell."""


def main() -> int:
    arguments = parse_arguments()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the order of sums does not depend on the machine
    os.environ.setdefault("PYTHONWARNINGS", "ignore:IProgress not found")  # tqdm's, where ipywidgets is missing
    failures = 0
    for path in arguments.notebooks or sorted(FOLDER.glob("[0-9]*.ipynb")):
        try:
            if arguments.check:
                check(path)
                print(f"{path.name}: fine")
            else:
                started = time.monotonic()
                is_same = execute(path, arguments.timeout)
                seconds = time.monotonic() - started
                say(f"{path.name}: {seconds:.0f} s, {'unchanged' if is_same else 'updated'}")
        except NotebookError as error:
            say(str(error), sys.stderr)
            failures += 1
    return int(failures > 0)


def say(line: str, stream: TextIO = sys.stdout) -> None:
    """Prints a line, replacing the progress if it is shown."""
    print(f"\r{line:<78}" if stream.isatty() else line, file=stream, flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all notebooks beside this script")
    parser.add_argument("--check", action="store_true", help="only verify that what is on disk was executed in order")
    parser.add_argument("--timeout", type=int, default=600, help="seconds a single cell may take (default %(default)s)")
    return parser.parse_args()


def execute(path: Path, timeout: int) -> bool:
    """Runs a notebook and writes it back; returns whether its bytes stayed the same."""
    notebook = read(path)
    for _, cell in code_cells(notebook):
        cell.outputs, cell.execution_count = [], None
    place = f"{path.name}, cell 1"

    def show_progress(cell: nbformat.NotebookNode, cell_index: int) -> None:
        nonlocal place
        place = f"{path.name}, cell {cell_index + 1}"
        if sys.stdout.isatty():
            print(f"\r{place} of {len(notebook.cells)}".ljust(78), end="", flush=True)

    client = NotebookClient(
        notebook,
        timeout=timeout,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.resolve().parent)}},  # as in Jupyter
        record_timing=False,
        store_widget_state=False,
        coalesce_streams=True,  # printed text is divided differently in each run
        extra_arguments=["--log-level=ERROR"],
        on_cell_start=show_progress,
    )
    try:
        client.execute()
    except CellTimeoutError as error:
        raise NotebookError(f"{place}: took more than {timeout} s") from error
    except DeadKernelError as error:
        raise NotebookError(f"{place}: the kernel died") from error
    except CellExecutionError as error:
        raise NotebookError(f"{place}:\n{error}") from error
    tidy(notebook)
    check_content(path, notebook)
    return write(path, nbformat.writes(notebook).rstrip("\n") + "\n")


def tidy(notebook: nbformat.NotebookNode) -> None:
    """Removes metadata on when, or with which patch release, a notebook was run."""
    notebook.metadata.pop("widgets", None)
    language = notebook.metadata.get("language_info", {})
    notebook.metadata["language_info"] = {key: language[key] for key in KEPT_LANGUAGE_INFO if key in language}
    for cell in notebook.cells:
        for name in VOLATILE_CELL_METADATA:
            cell.metadata.pop(name, None)


def check(path: Path) -> None:
    """Raises NotebookError unless the outputs in the file are those of one run from top to bottom."""
    notebook = read(path)
    expected = 1
    for i, cell in code_cells(notebook):
        if cell.execution_count != expected:
            got = (
                "was not executed" if cell.execution_count is None else f"was executed as number {cell.execution_count}"
            )
            raise NotebookError(f"{path.name}, cell {i + 1}: {got}, not as number {expected}; run notebooks/execute.py")
        expected += 1
    check_content(path, notebook)
    if path.stat().st_size > LARGEST_OUTPUTS:
        raise NotebookError(f"{path.name}: {path.stat().st_size} bytes, more than {LARGEST_OUTPUTS}")


def check_content(path: Path, notebook: nbformat.NotebookNode) -> None:
    """Raises NotebookError if an output is an error or text on stderr, such as a warning."""
    for i, cell in code_cells(notebook):
        allowed = {"nbval-raises-exception", "raises-exception"} & set(cell.metadata.get("tags", []))
        for output in cell.outputs:
            if output.output_type == "error" and not allowed:
                raise NotebookError(f"{path.name}, cell {i + 1}: {output.ename}: {output.evalue}")
            if output.output_type == "stream" and output.name == "stderr":
                raise NotebookError(f"{path.name}, cell {i + 1} wrote to stderr:\n{output.text}")
    if "widgets" in notebook.metadata:
        raise NotebookError(f"{path.name}: holds the state of widgets; run notebooks/execute.py")


def code_cells(notebook: nbformat.NotebookNode) -> list[tuple[int, nbformat.NotebookNode]]:
    """Non-empty code cells with their positions in the notebook."""
    return [(i, cell) for i, cell in enumerate(notebook.cells) if cell.cell_type == "code" and cell.source.strip()]


def read(path: Path) -> nbformat.NotebookNode:
    try:
        return nbformat.read(path, as_version=4)
    except FileNotFoundError as error:
        raise NotebookError(f"{path}: no such notebook") from error
    except (nbformat.reader.NotJSONError, nbformat.ValidationError) as error:
        raise NotebookError(f"{path}: not a notebook ({error})") from error


def write(path: Path, text: str) -> bool:
    """Replaces the file in one step if its content is new; returns whether it was the same."""
    content = text.encode()
    if path.read_bytes() == content:
        return True
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(name, path.stat().st_mode & 0o777)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return False


if __name__ == "__main__":
    sys.exit(main())
