"""Parts shared by tests of whole runs: ways to stop a run, and the comparison of two folders."""

import json

NUMBERS = ("config.json", "metrics.csv", "model.safetensors", "tokenizer.json")
ROUGH = dict(dropout=0.2, attention_dropout=0.2, density_weight=0.1, accumulate=2, steps=7)
"""Settings of a run that uses every random draw and every sum."""


def contents(folder):
    """Returns the contents of a folder's files by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class Stopped(Exception):
    """Raised to end a run between two checkpoints."""


def stop_after(number, error=Stopped):
    """Returns an ``on_step`` that raises an error after a step."""

    def on_step(step):
        if step.number == number:
            raise error

    return on_step


def has_same_numbers(a, b):
    """Returns whether two folders contain the same run, bit by bit except for times."""
    contents = [[(folder / name).read_bytes() for name in NUMBERS if (folder / name).exists()] for folder in (a, b)]
    first, second = (json.loads((folder / "result.json").read_text()) for folder in (a, b))
    assert len(contents[0]) >= 3
    return contents[0] == contents[1] and all(first[x] == second[x] for x in first if x not in ("seconds", "manifest"))
