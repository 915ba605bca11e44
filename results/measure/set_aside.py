"""Sets aside the benchmarks of another processor, before those of this one take their place.

``python results/measure/set_aside.py`` moves them to ``results/machines``, from where the page on benchmarks shows them
beside the new ones. ``make bench`` calls it first.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))  # for those who have the source tree but no installed package

from sbmt.command import run_command  # noqa: E402
from sbmt.experiments.benchmarks.manifest import processor  # noqa: E402
from sbmt.experiments.files import read_json  # noqa: E402

NAMES = ("bench", "bench_fitted")


def set_aside(results: Path, ours: str) -> list[Path]:
    """Moves the files of other processors than ours; returns where they are now. Ours are no longer set aside."""
    moved = []
    for name in NAMES:
        path = results / f"{name}.json"
        (results / "machines" / slug(ours) / path.name).unlink(missing_ok=True)
        theirs = read_json(path)["manifest"]["processor"] if path.exists() else ours
        if theirs != ours:
            place = results / "machines" / slug(theirs) / path.name
            place.parent.mkdir(parents=True, exist_ok=True)
            moved.append(path.replace(place))
    return moved


def slug(processor: str) -> str:
    """A processor's name as that of a folder.

    Example:
        >>> slug("AMD EPYC (family 26, model 2; AVX512)")
        'amd-epyc-family-26-model-2-avx512'
    """
    return re.sub(r"[^a-z0-9]+", "-", processor.lower()).strip("-")


def main() -> None:
    """Says what was moved."""
    for path in set_aside(ROOT / "results", processor()):
        print(f"Set aside: {path.relative_to(ROOT)}")


if __name__ == "__main__":
    run_command(main, "set_aside")
