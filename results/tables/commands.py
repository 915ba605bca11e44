"""Which command produces a number again, and which question its file answers."""

import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from results.tables.references import Results

SCRIPTS = ("measure_", "start_")


def read_questions(root: Path) -> list[dict[str, Any]]:
    """The rows of ``results/questions.toml``, one per result file."""
    return tomllib.loads((root / "results" / "questions.toml").read_text("utf-8"))["result"]


def file_of(reference: str) -> str:
    """The result file that a reference reads; empty if it reads none, the group's ``make`` target if several."""
    name, _, rest = reference.partition("/")
    inner = rest.partition("/")[0]
    by_function = {"count": inner, "points": inner, "lost": inner, "layer": inner, "ratio": "bench", "flops": "costs"}
    by_function |= {"relative": "costs", "gate": "ste_bias", "step": "landing", "limit": ""}
    by_function |= {"gibibytes": "gpu_needs", "bound": "gpu_needs"}
    by_function["twins"] = "make long-range" if inner == "lra" else inner
    return by_function.get(name, name)


def command_of(name: str, results: Results) -> str:
    """The command that wrote a result file, as the file has it; what makes it with others if it does not say."""
    if name == "theory":
        return "python -m theory --json results/theory.json"
    result = results.load(name) if results.has(name) else {}
    about = (result.get("mlm", {}) if name == "glue" else result).get("manifest")
    command = about["command"] if about else ""
    if command.startswith(SCRIPTS):
        return f"python results/{command}"
    if not command or command.partition(" ")[0].endswith(".py"):  # of a script elsewhere, its folder is not known
        return next(row["again"] for row in read_questions(results.root) if row["file"] == name)
    return re.sub(r" --workers \d+| --figure \S+", "", command)


def commands(files: Sequence[str], notebooks: Sequence[str], results: Results) -> list[str]:
    """What produces evidence again: result files first, then notebooks, all of them in one command.

    Args:
        files: Names of result files, or commands that begin with ``make``. Several studies that one target of make
            produces are named by it.
        notebooks: Numbers of two digits.
        results: Where the files are.
    """
    again = {row["file"]: row["again"] for row in read_questions(results.root)}
    named = [name if name.startswith("make ") else again[name] for name in dict.fromkeys(files)]
    shared = {target for target, n in Counter(named).items() if n > 1}
    found = [
        target if target in shared or name == target else command_of(name, results)
        for name, target in zip(dict.fromkeys(files), named, strict=True)
    ]
    if notebooks:
        found.append(f"python notebooks/execute.py {' '.join(f'notebooks/{one}*' for one in dict.fromkeys(notebooks))}")
    return list(dict.fromkeys(found))
