"""Moves the benchmarks of another processor to ``results/machines``, before those of this one take their place.

The page on benchmarks shows them beside the new ones. ``make bench`` calls this script before it moves those there.
"""

import re
from pathlib import Path

from results.measure.common import RESULTS, run
from sbmt.experiments.files import read_json
from sbmt.experiments.manifest import machine_manifest


def set_aside(results: Path, ours: str) -> list[Path]:
    """Moves the files of other processors; returns where they are now. Those of ours are no longer set aside."""
    moved = []
    for path in (results / "bench.json", results / "bench_fitted.json"):
        (results / "machines" / slug(ours) / path.name).unlink(missing_ok=True)
        theirs = read_json(path)["manifest"]["processor"] if path.exists() else ours
        if theirs != ours:
            place = results / "machines" / slug(theirs) / path.name
            place.parent.mkdir(parents=True, exist_ok=True)
            moved.append(path.replace(place))
    return moved


def slug(processor: str) -> str:
    """A processor's name as a folder name, such as ``amd-epyc-family-26-model-2-avx512``."""
    return re.sub(r"[^a-z0-9]+", "-", processor.lower()).strip("-")


def main() -> None:
    """Moves the files and prints their new places."""
    print(*(f"Set aside: {path}" for path in set_aside(RESULTS, machine_manifest()["processor"])), sep="\n")


if __name__ == "__main__":
    run(main, "set_aside")
