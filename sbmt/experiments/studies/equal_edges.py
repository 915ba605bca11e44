"""Fitted masks on long-range tasks, against other masks that hold as many edges and get the same chances."""

from typing import Any

from sbmt.experiments.studies.long_range import FULL, LONG_RANGE_STUDIES
from sbmt.experiments.studies.repeated_tokens import CONTROL, PARTS
from sbmt.experiments.studies.study import Study, Trial

_FITTED: dict[str, Any] = {"preset": "fitted", "n_clusters": 256, "block_model_rate": 1e-2}
_GATED: dict[str, Any] = PARTS | {"n_clusters": 256, "density_weight": 0.1, "density_kind": "expected"}


def _study(task: str, window: int, n_seeds: int, **settings: Any) -> Study:
    """Masks of two densities on one task: fitted, random and fixed ones, all with a sink and a loop at every token."""
    alike = LONG_RANGE_STUDIES[task]
    near = {"attention": "random_mask", "mask_density": 0.0, "window": window, "sink": True}
    trials = (
        FULL,
        *(Trial(f"fitted-{c}", f"fitted, c = {c}", _FITTED | {"edges_per_query": float(c)}) for c in (4, 2)),
        Trial("shared-4", "fitted, c = 4, one graph", _FITTED | {"edges_per_query": 4.0, "shared_graph": True}),
        *(Trial(f"random-{c}", f"random, as c = {c}", CONTROL, density_of=f"fitted-{c}") for c in (4, 2)),
        Trial("window", "window", near),
        Trial("straight-through", "straight-through, λ = 0.1", _GATED),
    )
    return Study(f"{task}-edges", f"{alike.title}, equal edges", alike.config.override(**settings), trials, n_seeds)


EQUAL_EDGES_STUDIES = {
    study.name: study for study in (_study("pathfinder", 4, 3), _study("listops", 2, 2, positions="rotary", steps=2400))
}
"""On the tasks where the attention of a trained network is concentrated: see the page on attention mass. ListOps takes
rotary positions and twice the steps, without which its attentions can hardly be told apart."""
