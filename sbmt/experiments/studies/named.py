"""The studies that have a name: ``sbmt study NAME`` trains the runs of each."""

from dataclasses import replace
from typing import Any

from sbmt.experiments.studies.study import Study, Trial
from sbmt.experiments.training.config import TrainingConfig
from sbmt.experiments.training.tasks import (
    REDUCED,
    REDUCED_MLM,
    SIZES,
    TASK_TITLES,
    RecallConfig,
    RepeatedTokensConfig,
    TwinsConfig,
    fitted,
)

Settings = dict[str, Any]


def _trial(name: str, title: str, n_seeds: int | None = None, /, **settings: Any) -> Trial:
    return Trial(name, title, settings, n_seeds=n_seeds)


FULL = _trial("full", "full attention", attention="full")
LINEAR = _trial("linear", "linear attention", attention="linear")
REFORMER = _trial("reformer", "Reformer", attention="reformer")
SBM = Trial("sbm", "SBM")
NO_LOOPS = _trial("no-loops", "SBM without self-loops", self_loops=False)
ALGORITHM_1 = _trial("sbm-algorithm-1", "SBM, Algorithm 1", preset="faithful")
RANDOM_EQUAL = Trial("random-equal", "random, SBM's density", {"attention": "random_mask"}, "sbm")
CONTROL: Settings = {"attention": "random_mask", "window": 0, "reweight": True, "sink": True}
WINDOW: Settings = {"attention": "random_mask", "mask_density": 0.0, "window": 8, "sink": True}


# Repeated tokens

_DEMO = SIZES["demo"]
_PAPER = replace(SIZES["paper"], batch_size=64)  # the paper's 256 would take four times as long
_FAST: Settings = {"learning_rate": 3e-3, "cooldown": 333}
_LATE: Settings = {"density_start": 500, "density_ramp": 500}
_FITTED: Settings = {"preset": "fitted", "edges_per_query": 64.0}


def _baselines(size: int, n_landmarks: int, n_chunk: int) -> tuple[Trial, ...]:
    return (
        _trial("linear", "linear", attention="linear"),
        _trial("linformer", f"Linformer, {size}", attention="linformer", n_projected=size),
        _trial("reformer", "Reformer", attention="reformer", n_chunk=n_chunk),
        _trial("performer", f"Performer, {size}", attention="performer", n_features=size),
        _trial("nystromformer", f"Nyströmformer, {n_landmarks}", attention="nystromformer", n_landmarks=n_landmarks),
    )


_DECIDES = (
    _trial("weight", "gate rule weight", gate_rule="weight"),
    _trial("weight-alone", "gate rule weight, no self-loops", gate_rule="weight", self_loops=False),
    _trial("std-0.02", "embedding std .02", embedding_std=0.02),
    _trial("std-0.3", "embedding std .3", embedding_std=0.3),
    _trial("delta-0", "δ = 0", exploration=0.0),
    _trial("delta-0.1", "δ = .1", exploration=0.1),
    _trial("keys-4", "4 extra keys per query", extra_keys=4.0),
    _trial("k-16", "k = 16", n_clusters=16),
    *(_trial(f"sampled-{w}", f"λ = {w:g}", density_weight=w) for w in (0.001, 0.01, 0.1)),
    _trial("expected-0.01", "λ = 0.01, expected", density_weight=0.01, density_kind="expected"),
    *(_trial(f"late-{w}", f"λ = {w:g}, late", density_weight=w, **_LATE) for w in (0.01, 0.1, 0.3)),
    _trial("late-expected-0.1", "λ = 0.1, late, expected", density_weight=0.1, density_kind="expected", **_LATE),
)
_ALL_OF_IT = _FITTED | {"n_clusters": 256}
_PARTS = (
    Trial("fitted", "all of it", _ALL_OF_IT),
    *(
        Trial(name, title, _ALL_OF_IT | changed)
        for name, title, changed in (
            ("no-reweighting", "without reweighting", {"reweight": False}),
            ("no-sink", "without the sink", {"sink": False}),
            ("no-self-loops", "without self-loops", {"self_loops": False}),
            ("one-rate", "block model at the network's rate", {"block_model_rate": 3e-3}),
            ("one-group", "one group of 64", {"n_groups": 1, "n_clusters": 64}),
            ("two-groups", "two groups of 64", {"n_groups": 2, "n_clusters": 128}),
            ("eight-groups", "eight groups of 64", {"n_groups": 8, "n_clusters": 512}),
            ("dense-steps", "after 200 dense steps", {"dense_steps": 200}),
            ("schedule", "c falling from 256", {"edges_from": 256.0, "edges_ramp": 1000}),
            ("k-64", "k = 64", {"n_clusters": 64}),
            ("k-576", "k = 576", {"n_clusters": 576}),
            ("c-16", "c = 16", {"edges_per_query": 16.0}),
            ("c-32", "c = 32", {"edges_per_query": 32.0}),
            ("c-128", "c = 128", {"edges_per_query": 128.0}),
            ("bilinear", "bilinear link", {"link": "bilinear", "membership": "sigmoid", "n_groups": 1}),
            ("keys-0", "ε = 0", {"exploration": 0.0}),
            ("keys-3", "ε = 3", {"extra_keys": 3.0}),
        )
    ),
    Trial("random", "random, density .06", CONTROL | {"mask_density": 0.06}),
    FULL,
)


def _scheduled(config: TrainingConfig, length: int, **changed: Any) -> TrainingConfig:
    """A task with the schedule of fitted masks, in steps of 4096 tokens at any length."""
    schedule = fitted(**changed)
    del schedule["n_clusters"]
    return replace(config, **schedule, length=length, batch_size=4096 // length)


def _controls(n_chunk: int) -> tuple[Trial, ...]:
    """What fitted masks are compared with, beside full attention."""
    return (
        FULL,
        Trial("random", "random, its density", CONTROL, density_of="fitted"),
        Trial("window", "window, 9 tokens", WINDOW),
        _trial("reformer", "Reformer", attention="reformer", n_chunk=n_chunk),
    )


def _fitted(length: int, n_clusters: int, n_chunk: int) -> Study:
    """Fitted masks against the controls, all at one length.

    At 1,024 tokens not even full attention leaves chance in 2,000 steps unless queries and keys start alike, as those
    of Reformer always do; there all methods start so.
    """
    is_long = length >= 1024
    masks = Trial("fitted", "fitted", _FITTED | {"n_clusters": n_clusters}, n_seeds=5)
    untied = [_trial("full-untied", "full, untied start", 1, attention="full", has_tied_start=False)] if is_long else []
    config = replace(_scheduled(_DEMO, length), has_tied_start=is_long)
    return Study(
        f"fitted-{length}", f"fitted masks, {length:,} tokens", config, (masks, *_controls(n_chunk), *untied), 2
    )


# Things never seen: what finds those that belong together when none can be learned by heart?

_UNSEEN: Settings = {"preset": "fitted", "n_clusters": 1024, "edges_per_query": 80.0}
_WIDE: Settings = {"d_model": 64, "d_hidden": 64, "learning_rate": 1.5e-3}


def _fresh(length: int, n_chunk: int) -> Study:
    config = _scheduled(RepeatedTokensConfig(fresh_values=True), length, steps=2500, **_WIDE)
    trials = (Trial("fitted", "fitted", _UNSEEN, n_seeds=5), *_controls(n_chunk))
    return Study(f"fresh-{length}", f"fresh values, {length} tokens", config, trials, 2)


def _twins() -> Study:
    sparser = _UNSEEN | {"edges_per_query": 32.0}
    masks = (
        Trial("fitted", "fitted", _UNSEEN, n_seeds=3),
        Trial("fitted-sparser", "fitted, c = 32", sparser, n_seeds=3),
    )
    config = _scheduled(TwinsConfig(), 64, steps=2000, **_WIDE)
    return Study("twins", "twins among photographs", config, (*masks, *_controls(16)), 2)


_RECALLED: Settings = {"preset": "fitted", "edges_per_query": 24.0, "n_clusters": 4096}
_KINDS = (
    Trial("fitted", "fitted", _RECALLED, n_seeds=3),
    FULL,
    _trial("reformer", "Reformer", attention="reformer", n_chunk=16),
    _trial("routing", "k-means routing", attention="routing", n_centroids=32),
)
_RECALL = (
    *_KINDS[:2],
    Trial("random", "random, its density", CONTROL, density_of="fitted"),
    Trial("window", "window, 9 tokens", WINDOW),
    Trial("window-random", "window and random, its density", WINDOW | {"reweight": True}, "fitted"),
    _KINDS[2],
    _trial("full-scaled", "full attention, scores × s ln n", attention="full", is_log_scaled=True),
    _KINDS[3],
    *(
        replace(
            one,
            name=f"{one.name}-permuted",
            title=f"{one.title}, permuted keys",
            settings=one.settings | {"permutation": True},
        )
        for one in _KINDS
    ),
)
"""All train on 64 tokens, where full attention learns; :mod:`results.measure.recall_lengths` evaluates them on more."""


# Long-range tasks; a run takes minutes on one CPU core

_PENALTY = _trial("sbm-0.1", "SBM, λ = 0.1", density_weight=0.1)
_BLACK = _trial("full-black", "full attention, black pixels count", attention="full", quirks=False)
_FILMS = REDUCED["retrieval"].override(data="retrieval-films", length=256, batch_size=16, steps=400, learning_rate=1e-3)
_LONG = REDUCED | {"retrieval": _FILMS, "retrieval-topics": REDUCED["retrieval"]}
"""The study ``retrieval`` is on pairs of film reviews, where no attention leaves chance, ``retrieval-topics`` on
generated pairs."""


def _long_range(name: str, *more: Trial) -> Study:
    title = TASK_TITLES[_LONG[name].task].split(":")[0] + (", topics" if name == "retrieval-topics" else "")
    equal = replace(RANDOM_EQUAL, title="random mask, SBM's density")
    return Study(name, title, _LONG[name], (FULL, LINEAR, SBM, equal, *more), 2)


# Masks with equally many edges: the page on attention mass says on which tasks attention is concentrated, and on which
# it is spread over most keys

_EDGES: Settings = {"preset": "fitted", "n_clusters": 256, "block_model_rate": 1e-2}


def _fitted_to(c: int) -> Trial:
    return Trial(f"fitted-{c}", f"fitted, c = {c}", _EDGES | {"edges_per_query": float(c)})


def _random_as(c: int) -> Trial:
    return Trial(f"random-{c}", f"random, as c = {c}", CONTROL, density_of=f"fitted-{c}")


def _near(width: int) -> Trial:
    """A window, with a sink and a loop at every token, as all masks here have them."""
    return Trial("window", "window", WINDOW | {"window": width})


def _equal_edges(name: str, cs: tuple[int, ...], width: int, n_seeds: int, **settings: Any) -> Study:
    alike = _long_range(name)
    trials = (FULL, *map(_fitted_to, cs), *map(_random_as, cs), _near(width), LINEAR, REFORMER)
    return Study(f"{name}-edges", f"{alike.title}, equal edges", alike.config.override(**settings), trials, n_seeds)


def _language() -> Study:
    """The masked language model without a window, beside one of 16, and beside it without reweighting."""
    masks = []
    for name, title, changed, n_seeds in (
        ("", "{}", {"window": 0}, 1),
        ("-near", "window and {}", {"window": 16}, 1),
        ("-near-plain", "window and {}, not reweighted", {"window": 16, "reweight": False}, 2),
    ):
        fit, random = _fitted_to(8).settings | changed, CONTROL | changed
        masks += [
            Trial(f"fitted{name}", title.format("fitted, c = 8"), fit, n_seeds=n_seeds),
            Trial(f"random{name}", title.format("random"), random, f"fitted{name}", n_seeds),
        ]
    trials = (FULL, replace(_near(16), n_seeds=2), *masks, LINEAR, REFORMER)
    return Study("mlm-edges", "masked language model, equal edges", REDUCED_MLM, trials, 1)


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
                Trial("fitted", "SBM, fitted", _ALL_OF_IT | _FAST | {"block_model_rate": 1e-2}),
                Trial("random-equal", "random, fitted density", CONTROL | _FAST, density_of="fitted"),
            ),
            1,
        ),
        Study(
            "attentions",
            "five attentions",
            _DEMO,
            (
                *(FULL, SBM, ALGORITHM_1, RANDOM_EQUAL),
                _trial("random-quarter", "random, density ¼", attention="random_mask", mask_density=0.25),
            ),
            5,
        ),
        Study(
            "figure4",
            "Figure 4, 256 tokens",
            _PAPER,
            (replace(FULL, n_seeds=3), replace(SBM, n_seeds=3), NO_LOOPS, *_baselines(256, 32, 32)),
            1,
        ),
        Study(
            "figure4-64",
            "Figure 4, 64 tokens",
            replace(_DEMO, steps=2000),
            (
                *(replace(trial, n_seeds=n) for trial, n in ((FULL, 5), (SBM, 5), (NO_LOOPS, 2), (RANDOM_EQUAL, 2))),
                ALGORITHM_1,
                *_baselines(64, 16, 16),
                _trial("nystromformer-64", "Nyströmformer, 64", attention="nystromformer", n_landmarks=64),
            ),
            1,
        ),
        Study(
            "collapse",
            "ten seeds",
            _DEMO,
            (
                *(SBM, NO_LOOPS),
                _trial("poisson-loops", "SBM with the Poisson link", 5, link="poisson"),
                _trial("poisson", "Poisson link without self-loops", 5, self_loops=False, link="poisson"),
            ),
            10,
        ),
        Study("decides", "what decides it", _DEMO, _DECIDES, 2),
        *(_fitted(64, 256, n_chunk=16), _fitted(256, 1024, n_chunk=32), _fitted(1024, 2304, n_chunk=32)),
        Study("fitted-parts", "what each part does", _scheduled(_DEMO, 64), _PARTS, 2),
        *(_fresh(64, n_chunk=16), _fresh(256, n_chunk=32), _twins()),
        Study("recall", "associative recall, 64 tokens", RecallConfig(steps=600, cooldown=200), _RECALL, 2),
        _long_range("listops", _PENALTY, REFORMER),
        *(_long_range(name, _PENALTY) for name in ("text", "retrieval-topics", "image")),
        *(_long_range("retrieval"), _long_range("pathfinder", _PENALTY, _BLACK)),
        # without rotary positions and twice the steps, the attentions of ListOps can hardly be told apart
        _equal_edges("listops", (4, 2), 2, 3, positions="rotary", steps=2400),
        _equal_edges("pathfinder", (4, 2), 4, 3),
        _equal_edges("retrieval-topics", (8,), 8, 3),  # one seed said that masks matter there
        *(_equal_edges(name, (8,), 8, 1) for name in ("text", "retrieval", "image")),
        _language(),
    )
}
