"""Fitted masks on real tasks, against other masks that hold as many edges and get the same chances."""

from dataclasses import replace
from typing import Any

from sbmt.experiments.studies.long_range import FULL, LINEAR, LONG_RANGE_STUDIES, REFORMER
from sbmt.experiments.studies.repeated_tokens import CONTROL
from sbmt.experiments.studies.study import Study, Trial
from sbmt.experiments.training.tasks import REDUCED_MLM

_FITTED: dict[str, Any] = {"preset": "fitted", "n_clusters": 256, "block_model_rate": 1e-2}


def _fitted(c: int, **settings: Any) -> Trial:
    return Trial(f"fitted-{c}", f"fitted, c = {c}", _FITTED | {"edges_per_query": float(c)} | settings)


def _random(c: int, **settings: Any) -> Trial:
    return Trial(f"random-{c}", f"random, as c = {c}", CONTROL | settings, density_of=f"fitted-{c}")


def _near(width: int) -> Trial:
    """A window, with a sink and a loop at every token, as all masks here have them."""
    return Trial("window", "window", {"attention": "random_mask", "mask_density": 0.0, "window": width, "sink": True})


def _concentrated(task: str, width: int, **settings: Any) -> Study:
    """Masks of two densities on a task where attention is concentrated."""
    alike = LONG_RANGE_STUDIES[task]
    trials = (FULL, *map(_fitted, (4, 2)), *map(_random, (4, 2)), _near(width), LINEAR, REFORMER)
    config = alike.config.override(**settings)
    return Study(f"{task}-edges", f"{alike.title}, equal edges", config, trials, 3)


def _spread(task: str, n_seeds: int) -> Study:
    """Masks of one density on a task where attention is spread over most keys."""
    alike = LONG_RANGE_STUDIES[task]
    trials = (FULL, _fitted(8), _random(8), _near(8), LINEAR, REFORMER)
    return Study(f"{task}-edges", f"{alike.title}, equal edges", alike.config, trials, n_seeds)


def _language() -> Study:
    """The masked language model without a window, beside one of 16, and beside it without reweighting."""
    masks = []
    for name, title, changed, n_seeds in (
        ("", "{}", {"window": 0}, 1),
        ("-near", "window and {}", {"window": 16}, 1),
        ("-near-plain", "window and {}, not reweighted", {"window": 16, "reweight": False}, 2),
    ):
        fitted, random = (kind | changed for kind in (_fitted(8).settings, CONTROL))
        masks += [
            Trial(f"fitted{name}", title.format("fitted, c = 8"), fitted, n_seeds=n_seeds),
            Trial(f"random{name}", title.format("random"), random, density_of=f"fitted{name}", n_seeds=n_seeds),
        ]
    trials = (FULL, replace(_near(16), n_seeds=2), *masks, LINEAR, REFORMER)
    return Study("mlm-edges", "masked language model, equal edges", REDUCED_MLM, trials, 1)


EQUAL_EDGES_STUDIES = {
    study.name: study
    for study in (
        _concentrated("listops", 2, positions="rotary", steps=2400),
        _concentrated("pathfinder", 4),
        _spread("text", 1),
        _spread("retrieval-topics", 3),
        _spread("retrieval", 1),  # no attention leaves chance
        _spread("image", 1),
        _language(),
    )
}
"""The page on attention mass says where attention is concentrated. ListOps takes rotary positions and twice the steps,
without which its attentions can hardly be told apart. Retrieval's topics take three seeds, since one said that masks
matter there; what takes longest to train has one."""
