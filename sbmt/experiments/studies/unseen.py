"""The studies of things never seen: what finds those that belong together when none can be learned by heart?"""

from dataclasses import replace
from typing import Any

from sbmt.experiments.studies.repeated_tokens import CONTROL, FULL, WINDOW
from sbmt.experiments.studies.study import Study, Trial
from sbmt.experiments.training.tasks import GeneratedConfig, RepeatedTokensConfig, TwinsConfig, fitted

MASK: dict[str, Any] = {"preset": "fitted", "n_clusters": 1024, "edges_per_query": 80.0}
"""Settings of the fitted masks."""
_WIDE: dict[str, Any] = {"d_model": 64, "d_hidden": 64, "learning_rate": 1.5e-3}


def _study(name: str, title: str, task: GeneratedConfig, n_seeds: int, n_chunk: int, *sparser: float) -> Study:
    """Fitted masks, on so many seeds, against the controls, on two. Steps hold 4,096 tokens at any length.

    Args:
        name: The study's.
        title: Likewise.
        task: What all trials share.
        n_seeds: Of the fitted masks.
        n_chunk: Reformer's chunks.
        *sparser: The ``edges_per_query`` of further fitted masks.
    """
    masks = [Trial("fitted", "fitted", MASK, n_seeds=n_seeds)]
    for c in sparser:
        masks.append(Trial("fitted-sparser", f"fitted, c = {c:g}", MASK | {"edges_per_query": c}, n_seeds=n_seeds))
    trials = (
        *masks,
        FULL,
        Trial("random", "random, its density", CONTROL, density_of="fitted"),
        Trial("window", "window, 9 tokens", WINDOW),
        Trial("reformer", "Reformer", {"attention": "reformer", "n_chunk": n_chunk}),
    )
    return Study(name, title, task, trials, 2)


def _trained(task: GeneratedConfig, **settings: Any) -> GeneratedConfig:
    """A task with the schedule of fitted masks."""
    schedule = fitted(**settings)
    del schedule["n_clusters"]
    return replace(task, **schedule, batch_size=4096 // schedule["length"])


_FRESH = RepeatedTokensConfig(fresh_values=True)


UNSEEN_STUDIES = {
    study.name: study
    for study in (
        _study("fresh-64", "fresh values, 64 tokens", _trained(_FRESH, length=64, steps=2500, **_WIDE), 5, 16),
        _study("fresh-256", "fresh values, 256 tokens", _trained(_FRESH, length=256, steps=2500, **_WIDE), 5, 32),
        _study(
            "twins", "twins among photographs", _trained(TwinsConfig(), length=64, steps=2000, **_WIDE), 3, 16, 32.0
        ),
    )
}
