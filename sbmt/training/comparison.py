"""The demo's experiment: full attention, SBM, and the controls that stand beside it."""

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from sbmt.errors import SbmtError
from sbmt.training.config import RepeatedTokensConfig
from sbmt.training.files import read_json
from sbmt.training.loop import Step, train
from sbmt.training.runs import Run, load_run, manifest

METHODS = ("full", "sbm", "sbm-algorithm-1", "random-equal", "random-quarter")

TITLES = {
    "full": "full attention",
    "sbm": "SBM",
    "sbm-algorithm-1": "SBM, Algorithm 1",
    "random-equal": "random, SBM's density",
    "random-quarter": "random, density ¼",
}


def compare(
    config: RepeatedTokensConfig,
    seeds: int,
    folder: Path,
    on_start: Callable[[str, int, int], None] | None = None,
    on_step: Callable[[Step], None] | None = None,
) -> list[tuple[str, Run]]:
    """Trains every method on every seed, one folder each; what is finished is loaded, what was begun goes on.

    Args:
        config: Common settings; ``attention``, ``preset``, ``mask_density`` and ``seed`` are set per run.
        seeds: How many seeds, from ``config.seed`` on.
        folder: Where the runs are kept.
        on_start: Called with method, seed and the steps already done.
        on_step: Called after every training step.

    Returns:
        (method, run) in the order they ran.
    """
    if seeds < 1:
        raise SbmtError("at least one seed", seeds, "give --seeds 1 or more")
    runs: list[tuple[str, Run]] = []
    for seed in range(config.seed, config.seed + seeds):
        density = 0.0
        for method in METHODS:
            settings = _settings(method, density)
            run_config = config.override(**settings, seed=seed)
            run = _train_or_load(run_config, folder / f"{method}-seed{seed}", method, on_start, on_step)
            if method == "sbm":
                density = run.test.density
            runs.append((method, run))
    return runs


def summary(runs: list[tuple[str, Run]]) -> dict[str, Any]:
    """All results and, per method, medians over seeds, with a manifest."""
    medians = {
        method: {
            name: round(median(getattr(run.test, name) for m, run in runs if m == method), 4)
            for name in ("loss", "accuracy", "density")
        }
        for method in METHODS
    }
    results = [{"method": method, **run.result()} for method, run in runs]
    for result in results:
        del result["manifest"]
    return {"task": "repeated_tokens", "medians": medians, "runs": results, "manifest": manifest()}


def _settings(method: str, density: float) -> dict[str, Any]:
    if method.startswith("sbm"):
        return {"attention": "sbm", "preset": "recommended" if method == "sbm" else "faithful"}
    if method.startswith("random"):
        return {"attention": "random_mask", "mask_density": density if method == "random-equal" else 0.25}
    return {"attention": method}


def _train_or_load(
    config: RepeatedTokensConfig,
    folder: Path,
    method: str,
    on_start: Callable[[str, int, int], None] | None,
    on_step: Callable[[Step], None] | None,
) -> Run:
    is_begun = (folder / "config.json").exists()
    if is_begun and RepeatedTokensConfig.from_dict(read_json(folder / "config.json")) != config:
        raise SbmtError(f"a run with these settings in {folder}", "another", "name another --output folder")
    is_done = (folder / "result.json").exists()
    if on_start is not None:
        on_start(method, config.seed, config.steps if is_done else 0)
    if is_done:
        return load_run(folder)
    resume = (folder / "state.safetensors").exists()
    if is_begun and not resume:
        (folder / "config.json").unlink()  # begun, but stopped before its first checkpoint
    return train(config, folder, resume=resume, on_step=on_step)
