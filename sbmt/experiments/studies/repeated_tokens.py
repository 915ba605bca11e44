"""The named studies of the synthetic task."""

from dataclasses import replace
from typing import Any

from sbmt.experiments.studies.study import Study, Trial
from sbmt.experiments.training.tasks import SIZES, RepeatedTokensConfig, fitted

_DEMO = SIZES["demo"]
_PAPER = replace(SIZES["paper"], batch_size=64)  # the paper's 256 would take four times as long

FULL = Trial("full", "full attention", {"attention": "full"})
SBM = Trial("sbm", "SBM")
NO_LOOPS = Trial("no-loops", "SBM without self-loops", {"self_loops": False})
ALGORITHM_1 = Trial("sbm-algorithm-1", "SBM, Algorithm 1", {"preset": "faithful"})
RANDOM_EQUAL = Trial("random-equal", "random, SBM's density", {"attention": "random_mask"}, density_of="sbm")
RANDOM_QUARTER = Trial("random-quarter", "random, density ¼", {"attention": "random_mask", "mask_density": 0.25})
STATIC = Trial("sbm-static", "SBM by position", {"attention": "sbm_static", "self_loops": True})
_LATE: dict[str, Any] = {"density_start": 500, "density_ramp": 500}
FITTED_MASKS: dict[str, Any] = {"preset": "fitted", "edges_per_query": 64.0}
_FAST = {"learning_rate": 3e-3, "cooldown": 333}
CONTROL = {"attention": "random_mask", "window": 0, "reweight": True, "sink": True}
WINDOW = {"attention": "random_mask", "mask_density": 0.0, "window": 8, "sink": True}


def _fitted_config(length: int, **changed: Any) -> RepeatedTokensConfig:
    """Sequences of any length make steps of 4096 tokens, which all methods train on at the same rates.

    At 1,024 tokens not even full attention leaves chance in 2,000 steps unless queries and keys start alike, as those
    of Reformer always do; there all methods start so.
    """
    schedule = fitted(**changed)
    del schedule["n_clusters"]
    return replace(_DEMO, length=length, batch_size=4096 // length, has_tied_start=length >= 1024, **schedule)


def _fitted(length: int, n_clusters: int, n_chunk: int, n_seeds: int) -> Study:
    """Fitted masks against the controls, all at one length."""
    trials = [
        Trial("fitted", "fitted", FITTED_MASKS | {"n_clusters": n_clusters}, n_seeds=n_seeds),
        FULL,
        Trial("random", "random, its density", CONTROL, density_of="fitted"),
        Trial("window", "window, 9 tokens", WINDOW),
        Trial("reformer", "Reformer", {"attention": "reformer", "n_chunk": n_chunk}),
    ]
    if length >= 1024:
        untied = {"attention": "full", "has_tied_start": False}
        trials.append(Trial("full-untied", "full, untied start", untied, n_seeds=1))
    return Study(
        f"fitted-{length}", f"fitted masks, {length:,} tokens", _fitted_config(length), tuple(trials), min(2, n_seeds)
    )


def _parts() -> tuple[Trial, ...]:
    """Fitted masks without each of their parts, and with other settings, at 64 tokens."""
    without: dict[str, tuple[str, dict[str, Any]]] = {
        "no-reweighting": ("without reweighting", {"reweight": False}),
        "no-sink": ("without the sink", {"sink": False}),
        "no-self-loops": ("without self-loops", {"self_loops": False}),
        "one-rate": ("block model at the network's rate", {"block_model_rate": 3e-3}),
        "one-group": ("one group of 64", {"n_groups": 1, "n_clusters": 64}),
        "two-groups": ("two groups of 64", {"n_groups": 2, "n_clusters": 128}),
        "eight-groups": ("eight groups of 64", {"n_groups": 8, "n_clusters": 512}),
        "dense-steps": ("after 200 dense steps", {"dense_steps": 200}),
        "schedule": ("c falling from 256", {"edges_from": 256.0, "edges_ramp": 1000}),
        "k-64": ("k = 64", {"n_clusters": 64}),
        "k-576": ("k = 576", {"n_clusters": 576}),
        "c-16": ("c = 16", {"edges_per_query": 16.0}),
        "c-32": ("c = 32", {"edges_per_query": 32.0}),
        "c-128": ("c = 128", {"edges_per_query": 128.0}),
        "bilinear": ("bilinear link", {"link": "bilinear", "membership": "sigmoid", "n_groups": 1}),
        "keys-0": ("ε = 0", {"exploration": 0.0}),
        "keys-3": ("ε = 3", {"extra_keys": 3.0}),
    }
    fitted_masks = FITTED_MASKS | {"n_clusters": 256}
    return (
        Trial("fitted", "all of it", fitted_masks),
        *(Trial(name, title, fitted_masks | changed) for name, (title, changed) in without.items()),
        Trial("random", "random, density .06", CONTROL | {"mask_density": 0.06}),
        FULL,
    )


def _baselines(size: int, n_landmarks: int, n_chunk: int) -> tuple[Trial, ...]:
    return (
        Trial("linear", "linear", {"attention": "linear"}),
        Trial("linformer", f"Linformer, {size}", {"attention": "linformer", "n_projected": size}),
        Trial("reformer", "Reformer", {"attention": "reformer", "n_chunk": n_chunk}),
        Trial("performer", f"Performer, {size}", {"attention": "performer", "n_features": size}),
        _nystromformer("nystromformer", n_landmarks),
    )


def _nystromformer(name: str, n_landmarks: int) -> Trial:
    settings = {"attention": "nystromformer", "n_landmarks": n_landmarks}
    return Trial(name, f"Nyströmformer, {n_landmarks}", settings)


def _sbm(name: str, title: str, n_seeds: int | None = None, **settings: Any) -> Trial:
    return Trial(name, title, settings, n_seeds=n_seeds)


STUDIES = {
    study.name: study
    for study in (
        Study(
            "demo",
            "four attentions",
            _DEMO,
            (
                replace(FULL, settings=FULL.settings | _FAST),
                replace(SBM, title="SBM, as published"),
                Trial("fitted", "SBM, fitted", FITTED_MASKS | _FAST | {"n_clusters": 256, "block_model_rate": 1e-2}),
                Trial("random-equal", "random, fitted density", CONTROL | _FAST, density_of="fitted"),
            ),
            1,
        ),
        Study("attentions", "five attentions", _DEMO, (FULL, SBM, ALGORITHM_1, RANDOM_EQUAL, RANDOM_QUARTER), 5),
        Study(
            "figure4",
            "Figure 4, 256 tokens",
            _PAPER,
            (
                *(replace(trial, n_seeds=3) for trial in (FULL, SBM)),
                NO_LOOPS,
                *_baselines(size=256, n_landmarks=32, n_chunk=32),
            ),
            1,
        ),
        Study(
            "figure4-64",
            "Figure 4, 64 tokens",
            replace(_DEMO, steps=2000),
            (
                *(replace(trial, n_seeds=5) for trial in (FULL, SBM)),
                replace(NO_LOOPS, n_seeds=2),
                replace(RANDOM_EQUAL, n_seeds=2),
                ALGORITHM_1,
                STATIC,
                *_baselines(size=64, n_landmarks=16, n_chunk=16),
                _nystromformer("nystromformer-64", 64),
            ),
            1,
        ),
        Study(
            "collapse",
            "ten seeds",
            _DEMO,
            (
                SBM,
                NO_LOOPS,
                _sbm("poisson-loops", "SBM with the Poisson link", n_seeds=5, link="poisson"),
                _sbm("poisson", "Poisson link without self-loops", n_seeds=5, self_loops=False, link="poisson"),
            ),
            10,
        ),
        Study(
            "decides",
            "what decides it",
            _DEMO,
            (
                _sbm("weight", "gate rule weight", gate_rule="weight"),
                _sbm("weight-alone", "gate rule weight, no self-loops", gate_rule="weight", self_loops=False),
                _sbm("std-0.02", "embedding std .02", embedding_std=0.02),
                _sbm("std-0.3", "embedding std .3", embedding_std=0.3),
                _sbm("delta-0", "δ = 0", exploration=0.0),
                _sbm("delta-0.1", "δ = .1", exploration=0.1),
                _sbm("keys-4", "4 extra keys per query", extra_keys=4.0),
                _sbm("k-16", "k = 16", n_clusters=16),
                *(_sbm(f"sampled-{w}", f"λ = {w:g}", density_weight=w) for w in (0.001, 0.01, 0.1)),
                _sbm("expected-0.01", "λ = 0.01, expected", density_weight=0.01, density_kind="expected"),
                *(_sbm(f"late-{w}", f"λ = {w:g}, late", density_weight=w, **_LATE) for w in (0.01, 0.1, 0.3)),
                _sbm(
                    "late-expected-0.1",
                    "λ = 0.1, late, expected",
                    density_weight=0.1,
                    density_kind="expected",
                    **_LATE,
                ),
            ),
            2,
        ),
        _fitted(64, n_clusters=256, n_chunk=16, n_seeds=5),
        _fitted(256, n_clusters=1024, n_chunk=32, n_seeds=5),
        _fitted(1024, n_clusters=2304, n_chunk=32, n_seeds=5),
        Study("fitted-parts", "what each part does", _fitted_config(64), _parts(), 2),
    )
}
