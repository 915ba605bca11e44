"""Measures how sampled masks change the embeddings of a sentence encoder; writes ``results/pretrained.json``.

Masks are fitted to training reviews, and tested by retrieving the second half of a review from its first half. In one
case, the encoder is also distilled. Takes about four hours on one core; measurements are kept in ``runs/pretrained``.
The published cases of 64 and 128 tokens come from commit 6714ab6, with an earlier version of the fit.
"""

from functools import partial
from itertools import islice
from statistics import mean
from typing import Any, NamedTuple

import torch
from rich.progress import track
from torch import Tensor, nn

from results.measure.common import RESULTS, difference, kept, run, write
from results.measure.distil import distil
from results.measure.encoder import MEASURED_ON, STEPS, encoder, fitted, texts_of, under_masks
from sbmt.experiments.plots.encoder_masks import draw_encoder_masks
from sbmt.experiments.sparsification.compare import FITTED, FULL
from sbmt.experiments.sparsification.pretrained import embed
from sbmt.sparsification import measure_masks


class Case(NamedTuple):
    """Tokens in a half, edges per query, steps of fit and distillation; how many kinds of mask, reviews, fits."""

    length: int
    c: int
    steps: int = STEPS
    distilled: int = 0
    n_kinds: int | None = None
    n_reviews: int = 120
    n_fits: int = 3


CASES = Case(64, 8), Case(128, 16), Case(256, 16), Case(256, 32), Case(512, 32, n_fits=1)
CASES += Case(512, 32, 600, 0, 2, 420), Case(512, 14, STEPS, 400, 2, 420, 1)  # all reviews of this length


def is_found(embedded: Tensor) -> list[float]:
    """Returns 1.0 for each review whose first half is closest to its own second half, and 0.0 for all others."""
    first, second = embedded.chunk(2)
    return ((first @ second.T).argmax(1) == torch.arange(len(first))).double().tolist()


def measure(case: Case, seed: int) -> dict[str, Any]:
    """Returns retrieval results, cosines to full attention's embeddings, and the density for each kind of mask."""
    asked, others = texts_of(case.length, case.steps + case.distilled, case.n_reviews)
    tuned_on = others[:MEASURED_ON]
    sparse = fitted(others, seed, case.steps, edges_per_query=float(case.c))
    full = embed(encoder()[0], asked)
    found = {}

    def test(kind: str, masked: nn.Module, density: float) -> None:
        embedded = full if kind == FULL else embed(masked, asked)
        cosines = (embedded * full).sum(-1).tolist()
        found[kind] = {"density": density, "items": is_found(embedded), "cosines": cosines}

    for kind, masked, density in islice(under_masks(sparse, tuned_on), case.n_kinds):
        test(kind, masked, density)
    if case.distilled:
        distil(sparse, encoder()[0], others[MEASURED_ON + case.steps :], case.distilled)
        test(f"{FITTED}, distilled", sparse, measure_masks(sparse, tuned_on).mean("density"))
    return found


def summary(seeds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns one row per kind of mask, with means over seeds, and intervals over seeds and reviews."""
    rows = []
    for kind in seeds[0]:
        items, cosines = ([seed[kind][name] for seed in seeds] for name in ("items", "cosines"))
        row: dict[str, Any] = {"kind": kind, "density": mean(seed[kind].get("density", 1.0) for seed in seeds)}
        row["cosine"] = difference(cosines, [[0.0] * len(x) for x in cosines])
        row["found"], row["lost"] = mean(map(mean, items)), difference([seed[FULL]["items"] for seed in seeds], items)
        rows.append(row)
    return rows


def main() -> None:
    """Measures all cases, writes the result file and draws the figure."""
    found: dict[str, list[Any]] = {"cases": [], "lengths": []}
    panels = {}
    for case in track(CASES, "encoder"):
        place = f"pretrained/halves-{case.length}-{case.c}-{case.steps}-seed"
        rows = summary([kept(f"{place}{seed}.json", partial(measure, case, seed)) for seed in range(case.n_fits)])
        title = f"{case.length} tokens, c = {case.c}" + (f", {case.steps:,} steps" if case.steps != STEPS else "")
        title += (f", {case.n_reviews} reviews" if case.n_kinds else "") + (", one fit" if case.n_fits == 1 else "")
        is_drawn = case.length == 256
        found["cases" if is_drawn else "lengths"].append({"title": title, **case._asdict(), "kinds": rows})
        if is_drawn:
            panels[f"c = {case.c}: "] = [row | {"cosine": row["cosine"]["mean"]} for row in rows if row["kind"] != FULL]
    write("pretrained", found)
    draw_encoder_masks(panels, RESULTS / "pretrained.png")


if __name__ == "__main__":
    run(main, "pretrained")
