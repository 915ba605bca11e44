"""Measures how sampled masks change the embeddings of a sentence encoder; writes ``results/pretrained.json``.

Masks are fitted to training reviews, and tested by retrieving the second half of a review from its first half. In one
case, the encoder is also distilled. It takes about six hours on one core; measurements are kept in ``runs/pretrained``.
"""

from collections.abc import Sequence
from functools import partial
from statistics import mean
from typing import Any, NamedTuple

import torch
from rich.progress import track
from torch import Tensor

from results.measure.common import RESULTS, difference, kept, run, write
from results.measure.encoder import KINDS, MEASURED_ON, N_FITS, STEPS, encoder, fitted, texts_of, under_masks
from sbmt.experiments.plots.encoder_masks import draw_encoder_masks
from sbmt.experiments.sparsification.compare import FITTED, FULL
from sbmt.experiments.sparsification.pretrained import embed


class Case(NamedTuple):
    """Tokens in a half, edges per query, steps of fit and distillation, kinds of mask, and number of reviews."""

    length: int
    c: int
    steps: int = STEPS
    distilled: int = 0
    kinds: Sequence[str] = KINDS
    n_reviews: int = 120


CASES = Case(64, 8), Case(128, 16), Case(256, 16), Case(256, 32), Case(512, 32)
CASES += Case(512, 32, 600, 0, [FITTED], 420), Case(512, 14, STEPS, 400, [FITTED, "window and both ends"], 420)


def is_found(embedded: Tensor) -> list[float]:
    """Returns 1.0 for each review whose first half is closest to its own second half, and 0.0 for all others."""
    first, second = embedded.chunk(2)
    return ((first @ second.T).argmax(1) == torch.arange(len(first))).double().tolist()


def measure(case: Case, seed: int) -> dict[str, Any]:
    """Returns retrieval results, cosines to full attention's embeddings, and the density for each kind of mask."""
    asked, others = texts_of(case.length, case.steps + case.distilled, case.n_reviews)
    sparse = fitted(others, seed, case.steps, edges_per_query=float(case.c))
    full = embed(encoder()[0], asked)
    found = {}
    tuned_on, distilled_on = others[:MEASURED_ON], others[MEASURED_ON + case.steps :]
    kinds = [FITTED] if case.distilled and seed else case.kinds  # the window hardly depends on the fit
    for kind, masked, density in under_masks(sparse, tuned_on, distilled_on, kinds):
        embedded = full if kind == FULL else embed(masked, asked)
        cosines = (embedded * full).sum(-1).tolist()
        found[kind] = {"density": density, "items": is_found(embedded), "cosines": cosines}
    return found


def summary(seeds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns one row per kind of mask, with means over seeds, and intervals over seeds and reviews."""
    rows = []
    for kind in seeds[0]:
        found = [seed[kind] for seed in seeds if kind in seed]
        items, cosines = ([of_seed[name] for of_seed in found] for name in ("items", "cosines"))
        row: dict[str, Any] = {"kind": kind, "density": mean(of_seed["density"] for of_seed in found)}
        row["cosine"] = difference(cosines, [[0.0] * len(x) for x in cosines])
        row["found"], row["lost"] = mean(map(mean, items)), difference([seed[FULL]["items"] for seed in seeds], items)
        rows.append(row)
    return rows


def main() -> None:
    """Measures all cases, writes the result file and draws the figure."""
    found: dict[str, list[Any]] = {"cases": [], "lengths": []}
    for case in track(CASES, "encoder"):
        place = f"pretrained/halves-{case.length}-{case.c}-{case.steps}-seed"
        rows = summary([kept(f"{place}{seed}.json", partial(measure, case, seed)) for seed in range(N_FITS)])
        title = f"{case.length} tokens, c = {case.c}" + (f", {case.steps:,} steps" if case.steps != STEPS else "")
        title += f", {case.n_reviews} reviews" if case.n_reviews > 120 else ""
        found["cases" if case.length == 256 else "lengths"].append({"title": title, **case._asdict(), "kinds": rows})
    write("pretrained", found)
    drawn = {f"c = {x['c']}: ": x["kinds"][1:] for x in found["cases"]}
    panels = {c: [row | {"cosine": row["cosine"]["mean"]} for row in rows] for c, rows in drawn.items()}
    draw_encoder_masks(panels, RESULTS / "pretrained.png")


if __name__ == "__main__":
    run(main, "pretrained")
