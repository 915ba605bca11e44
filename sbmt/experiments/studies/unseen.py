"""The studies of things never seen: what finds those that belong together when none can be learned by heart?"""

from dataclasses import dataclass, replace
from typing import Any

from sbmt.experiments.studies.repeated_tokens import CONTROL, FULL, WINDOW
from sbmt.experiments.studies.study import Study, Trial
from sbmt.experiments.training.generated import GeneratedConfig
from sbmt.experiments.training.repeated_tokens import RepeatedTokensConfig, fitted
from sbmt.experiments.training.twins import TwinsConfig


@dataclass(frozen=True)
class Setting:
    """What exploration chose for a study.

    Attributes:
        training: Fields that all trials share.
        mask: Options of the fitted masks, and fields of their trial alone.
        n_chunk: Reformer's chunks.
        fewer_edges: The ``edges_per_query`` of a second, sparser trial.
    """

    training: dict[str, Any]
    mask: dict[str, Any]
    n_chunk: int
    fewer_edges: float | None = None


_WIDE: dict[str, Any] = {"d_model": 64, "d_hidden": 64, "learning_rate": 1.5e-3}
SETTINGS = {
    "fresh-64": Setting(
        {"length": 64, "steps": 2500, **_WIDE},
        {"n_clusters": 1024, "edges_per_query": 80.0},
        n_chunk=16,
    ),
    "fresh-256": Setting(
        {"length": 256, "steps": 2500, **_WIDE},
        {"n_clusters": 1024, "edges_per_query": 80.0},
        n_chunk=32,
    ),
    "shared-graph": Setting(
        {"length": 256, "steps": 2500, "learning_rate": 1.5e-3, "n_heads": 4, "d_model": 128, "d_hidden": 128},
        {"n_clusters": 1024, "edges_per_query": 80.0},
        n_chunk=32,
    ),
    "twins": Setting(
        {"length": 64, "steps": 2000, **_WIDE},
        {"n_clusters": 1024, "edges_per_query": 80.0},
        n_chunk=16,
        fewer_edges=32.0,
    ),
}
"""By name of the study."""


def _study(name: str, title: str, task: GeneratedConfig, n_seeds: int) -> Study:
    """Fitted masks, on so many seeds, against the controls, on two. Steps hold 4,096 tokens at any length."""
    setting = SETTINGS[name]
    schedule = fitted(**setting.training)
    del schedule["n_clusters"]
    mask = {"preset": "fitted"} | setting.mask
    masks = [Trial("fitted", "fitted", mask, n_seeds=n_seeds)]
    if (c := setting.fewer_edges) is not None:
        masks.append(Trial("fitted-sparser", f"fitted, c = {c:g}", mask | {"edges_per_query": c}, n_seeds=n_seeds))
    trials = (
        *masks,
        FULL,
        Trial("random", "random, its density", CONTROL, density_of="fitted"),
        Trial("window", "window, 9 tokens", WINDOW),
        Trial("reformer", "Reformer", {"attention": "reformer", "n_chunk": setting.n_chunk}),
    )
    return Study(name, title, replace(task, **schedule, batch_size=4096 // schedule["length"]), trials, 2)


_FRESH = RepeatedTokensConfig(fresh_values=True)


def _shared() -> Study:
    """A graph for each of four heads, and one for all of them."""
    study = _study("shared-graph", "fresh values, four heads", _FRESH, 2)
    each = replace(study.trials[0], title="a graph for each head")
    one = Trial("shared", "one graph for all heads", each.settings | {"shared_graph": True}, n_seeds=each.n_seeds)
    return replace(study, trials=(each, one))


UNSEEN_STUDIES = {
    study.name: study
    for study in (
        _study("fresh-64", "fresh values, 64 tokens", _FRESH, 5),
        _study("fresh-256", "fresh values, 256 tokens", _FRESH, 5),
        _shared(),
        _study("twins", "twins among photographs", TwinsConfig(), 3),
    )
}
