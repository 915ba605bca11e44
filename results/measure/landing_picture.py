"""The three pictures of the landing page; writes ``docs/assets/landing/*.svg``.

``python results/measure/landing_picture.py`` trains the demo's fitted network once more, which takes a minute, and
draws what it attends on a sequence that it has not seen: the pairs of equal tokens, and one mask. The third picture is
drawn from ``results/demo.json``. The pictures stand in the page itself, whose style sheet gives them the colours of its
theme.
"""

from collections.abc import Iterable
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from results.measure.landing import DEMO, config_of
from sbmt.command import run_command
from sbmt.experiments.data.repeated_tokens import majority_accuracy
from sbmt.experiments.files import read_json, write_bytes
from sbmt.experiments.plots.repeated_tokens import see_mask
from sbmt.experiments.training.fit import fit

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "assets" / "landing"
SIDE = 192  # of every picture, in its own units
SEQUENCE = 0  # seed of the sequence that is shown
LEFT, RIGHT, TOP, BOTTOM = 30, 6, 12, 30  # margins of the chart
LOWEST = 0.5  # accuracy
LABELS = {
    "fitted": ("fitted mask", (8, 4), "start"),
    "random-equal": ("random, as sparse", (8, -7), "start"),
    "sbm": ("SBM as published", (-9, 13), "end"),
    "full": ("full attention", (-9, 4), "end"),
}
"""For each trial its label, where that is put beside the dots, and how it is anchored."""


def mask_svg(layers: Iterable[tuple[str, Tensor]], label: str) -> str:
    """A square with a cell for each pair; every layer, bool ``(n, n)``, has a class of its own."""
    parts = []
    for name, cells in layers:
        n = len(cells)
        parts.append(f'<path class="{name}" transform="scale({SIDE / n:g})" d="{_runs(cells)}"/>')
    return _svg("".join(parts) + f'<rect class="frame" width="{SIDE}" height="{SIDE}"/>', label)


def _runs(cells: Tensor) -> str:
    """A path over all cells that are true, neighbours in a row joined."""
    steps = []
    for y, row in enumerate(cells.tolist()):
        x = 0
        for is_true, run in groupby(row):
            width = len(list(run))
            if is_true:
                steps.append(f"M{x} {y}h{width}v1h-{width}z")
            x += width
    return "".join(steps)


def chart_svg(runs: list[dict[str, Any]]) -> str:
    """Accuracy over keys per query, a dot for each run of the demo."""
    length = runs[0]["config"]["length"]
    wide, high = SIDE - LEFT - RIGHT, SIDE - TOP - BOTTOM

    def place(keys: float, accuracy: float) -> tuple[float, float]:
        return LEFT + wide * keys / length, TOP + high * (1 - accuracy) / (1 - LOWEST)

    guess = place(0, majority_accuracy(length))[1]
    parts = [
        f'<path class="frame" d="M{LEFT} {TOP - 6}V{SIDE - BOTTOM}H{SIDE - RIGHT}"/>',
        f'<path class="guess" d="M{LEFT} {guess:.1f}H{SIDE - RIGHT}"/>',
        _text(SIDE - RIGHT, guess + 13, "always “yes”", "end"),
        _text((LEFT + SIDE - RIGHT) / 2, SIDE - 3, f"keys per query, of {length}", "middle"),
    ]
    parts += [_text(place(x, 0)[0], SIDE - BOTTOM + 12, str(x), "middle") for x in range(0, length + 1, length // 4)]
    parts += [_text(LEFT - 4, place(0, y)[1] + 4, f"{y:.0%}", "end") for y in (LOWEST, 1.0)]
    for trial, (label, shift, anchor) in LABELS.items():
        tests = [run["test"] for run in runs if run["trial"] == trial]
        places = [place(test["density"] * length, test["accuracy"]) for test in tests]
        parts += [f'<circle class="{trial}" cx="{x:.1f}" cy="{y:.1f}" r="3.6"/>' for x, y in places]
        x, y = max(places) if anchor == "start" else min(places)
        parts.append(_text(x + shift[0], y + shift[1], label, anchor))
    return _svg("".join(parts), "Accuracy over keys per query: the fitted mask is as right as full attention")


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(inside: str, label: str) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="shown" viewBox="0 0 {SIDE} {SIDE}" role="img"'
    return f'{head} aria-label="{escape(label)}">{inside}</svg>\n'


def main() -> None:
    """Trains, draws and writes."""
    torch.set_num_threads(1)
    runs = read_json(DEMO)["runs"]
    run = min((run for run in runs if run["trial"] == "fitted"), key=lambda run: run["config"]["seed"])
    seen = see_mask(fit(config_of(run["config"])).model, SEQUENCE)
    right, rest = seen.drawn & seen.twins, seen.drawn & ~seen.twins
    n_drawn, n_right, n_wanted = (int(mask.sum()) for mask in (seen.drawn, right, seen.twins))
    found = f"A mask that the network drew: {n_drawn} of {right.numel()} pairs, {n_right} of the {n_wanted} that matter"
    pictures = {
        "matter": mask_svg([("wanted", seen.twins)], "Pairs of equal tokens, sorted by value: blocks on the diagonal"),
        "found": mask_svg([("other", rest), ("wanted", right)], found),
        "accuracy": chart_svg(runs),
    }
    for name, picture in pictures.items():
        write_bytes(FOLDER / f"{name}.svg", picture.encode())
    print(found)


if __name__ == "__main__":
    run_command(main, "landing_picture")
