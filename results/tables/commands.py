"""Which command produces a result file again, and which question the file answers."""

import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from results.tables.files import Files


def read_questions(root: Path) -> list[dict[str, Any]]:
    """The rows of ``results/questions.toml``, one per result file."""
    return tomllib.loads((root / "results" / "questions.toml").read_text("utf-8"))["result"]


def command_of(name: str, files: Files) -> str:
    """The command that writes a result file: its script if it has one, or what the file itself records.

    Where the command is gone, the commit that has it is added.
    """
    if name == "theory":
        return "python -m theory --json results/theory.json"
    if (Path(__file__).parents[1] / "measure" / f"{name}.py").exists():
        return f"python results/measure/{name}.py"
    row = next((row for row in read_questions(files.root) if row["file"] == name), {})
    result = files.load(name) if files.has(name) else {}
    about = (result.get("mlm", {}) if name == "glue" else result).get("manifest")
    command = about["command"] if about else ""
    if not command or command.partition(" ")[0].endswith(".py"):  # the folder of a script is not recorded
        return row["again"]
    place = f"  # at commit {row['commit']}" if "commit" in row else ""
    return re.sub(r" --workers \d+| --figure \S+", "", command) + place


def commands(names: Sequence[str], notebooks: Sequence[str], files: Files) -> list[str]:
    """What produces evidence again: result files first, then notebooks, by their two digits, all in one command.

    If a target of make produces several of the files, it stands for all of them.
    """
    again = {row["file"]: row["file" if "commit" in row else "again"] for row in read_questions(files.root)}
    targets = {name: again[name] for name in names}
    n_files = Counter(targets.values())
    found = [target if n_files[target] > 1 else command_of(name, files) for name, target in targets.items()]
    if notebooks:
        found.append(f"python notebooks/execute.py {' '.join(f'notebooks/{one}*' for one in dict.fromkeys(notebooks))}")
    return list(dict.fromkeys(found))
