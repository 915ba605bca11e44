"""What distillation wins back under very sparse masks; writes ``results/pretrained_distilled.json``.

All weights of the encoder are trained for some steps under its masks, so that embeddings of reviews come closer to
those of full attention, without labels: the loss is 1 − cosine. Halves of reviews are asked about as in
``pretrained.py``, before and after; what was measured is kept in ``runs/pretrained``.
"""

from typing import Any

import torch

from results.measure.common import RUNS, run, write
from results.measure.pretrained import MEASURED_ON, encoder, fitted, is_found, summary, texts_of
from sbmt.experiments.files import read_json, write_json
from sbmt.experiments.sparsification.masks import random_and_ends
from sbmt.experiments.sparsification.pretrained import FITTED, FULL, distil, embed, with_masks
from sbmt.sparsification import measure_masks
from sbmt.sparsification.convert import fitted_layers

LENGTH, EDGES_PER_QUERY, STEPS = 256, 8, 150
AFTER = "{}, distilled"
CONTROL = {"random and both ends": random_and_ends}


def measure() -> dict[str, Any]:
    """Which halves are found, cosines to full attention's embeddings and shares of pairs, before and after."""
    asked, others = texts_of(LENGTH)
    full = embed(encoder()[0], asked)
    sparse = fitted(others, 0, edges_per_query=float(EDGES_PER_QUERY), global_tokens=True)
    masked = dict(with_masks(*(encoder()[0], sparse, others[:MEASURED_ON]), others=CONTROL))
    found: dict[str, Any] = {FULL: {"items": is_found(full), "cosines": [1.0] * len(full)}}
    for kind in (FITTED, *CONTROL):
        for name in (kind, AFTER.format(kind)):
            if name != kind:
                torch.manual_seed(0)
                distil(masked[kind], encoder()[0], others[MEASURED_ON:], STEPS)
            masks = {layer: masked[kind].get_submodule(layer) for layer in fitted_layers(sparse)}
            density = measure_masks(sparse, others[:MEASURED_ON], masks).mean("density")
            embedded = embed(masked[kind].eval(), asked)
            cosines = (embedded * full).sum(-1).tolist()
            found[name] = {"density": density, "items": is_found(embedded), "cosines": cosines}
    return found


def main() -> None:
    """Measures and writes."""
    path = RUNS / "pretrained" / f"distilled-{LENGTH}-{EDGES_PER_QUERY}.json"
    if not path.exists():
        write_json(path, measure())
    write("pretrained_distilled", {"length": LENGTH, "steps": STEPS, "kinds": summary([read_json(path)])})


if __name__ == "__main__":
    run(main, "pretrained_distilled")
