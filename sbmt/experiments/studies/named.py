"""The studies that have a name: ``sbmt study NAME`` trains the runs of each."""

from dataclasses import replace
from typing import Any

from sbmt.experiments.studies.study import Study, Trial
from sbmt.experiments.training.config import TrainingConfig
from sbmt.experiments.training.generated import SIZES, RecallConfig, RepeatedTokensConfig, fitted
from sbmt.experiments.training.tasks import REDUCED, REDUCED_MLM, TASK_TITLES


def _trial(name: str, title: str, n_seeds: int | None = None, of: str | None = None, /, **settings: Any) -> Trial:
    return Trial(name, title, settings, of, n_seeds)


FULL = _trial("full", "full attention", attention="full")
LINEAR = _trial("linear", "linear attention", attention="linear")
REFORMER = _trial("reformer", "Reformer", attention="reformer")
SBM = _trial("sbm", "SBM")
NO_LOOPS = _trial("no-loops", "SBM without self-loops", self_loops=False)
ALGORITHM_1 = _trial("sbm-algorithm-1", "SBM, Algorithm 1", preset="faithful")
RANDOM_EQUAL = _trial("random-equal", "random, SBM's density", None, "sbm", attention="random_mask")
CONTROL = {"attention": "random_mask", "window": 0, "reweight": True, "sink": True}
WINDOW = {"attention": "random_mask", "mask_density": 0.0, "window": 8, "sink": True}
FITTED = {"preset": "fitted", "edges_per_query": 64.0}
UNSEEN = {"preset": "fitted", "n_clusters": 1024, "edges_per_query": 80.0}
RECALLED = {"preset": "fitted", "edges_per_query": 24.0, "n_clusters": 4096}
WIDE = {"d_model": 64, "d_hidden": 64, "learning_rate": 1.5e-3}
DEMO = SIZES["demo"]


# Repeated tokens


def _demo() -> Study:
    fast = {"learning_rate": 3e-3, "cooldown": 333}
    trials = (
        replace(FULL, settings=FULL.settings | fast),
        replace(SBM, title="SBM, as published"),
        Trial("fitted", "SBM, fitted", FITTED | fast | {"n_clusters": 256, "block_model_rate": 1e-2}),
        Trial("random-equal", "random, fitted density", CONTROL | fast, density_of="fitted"),
    )
    return Study("demo", "four attentions", DEMO, trials, 1)


def _baselines(size: int, n_landmarks: int, n_chunk: int) -> tuple[Trial, ...]:
    return (
        _trial("linear", "linear", attention="linear"),
        _trial("linformer", f"Linformer, {size}", attention="linformer", n_projected=size),
        _trial("reformer", "Reformer", attention="reformer", n_chunk=n_chunk),
        _trial("performer", f"Performer, {size}", attention="performer", n_features=size),
        _trial("nystromformer", f"Nyströmformer, {n_landmarks}", attention="nystromformer", n_landmarks=n_landmarks),
    )


def _figure_4() -> Study:
    config = replace(SIZES["paper"], batch_size=64)  # the paper's 256 would take four times as long
    trials = (replace(FULL, n_seeds=3), replace(SBM, n_seeds=3), NO_LOOPS, *_baselines(256, 32, 32))
    return Study("figure4", "Figure 4, 256 tokens", config, trials, 1)


def _figure_4_short() -> Study:
    trials = (
        *(replace(trial, n_seeds=n) for trial, n in ((FULL, 5), (SBM, 5), (NO_LOOPS, 2), (RANDOM_EQUAL, 2))),
        ALGORITHM_1,
        _trial("sbm-static", "SBM by position", attention="sbm_static", self_loops=True),
        *_baselines(64, 16, 16),
        _trial("nystromformer-64", "Nyströmformer, 64", attention="nystromformer", n_landmarks=64),
    )
    return Study("figure4-64", "Figure 4, 64 tokens", replace(DEMO, steps=2000), trials, 1)


def _collapse() -> Study:
    loops = _trial("poisson-loops", "SBM with the Poisson link", 5, link="poisson")
    alone = _trial("poisson", "Poisson link without self-loops", 5, self_loops=False, link="poisson")
    return Study("collapse", "ten seeds", DEMO, (SBM, NO_LOOPS, loops, alone), 10)


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
    masks = Trial("fitted", "fitted", FITTED | {"n_clusters": n_clusters}, n_seeds=5)
    untied = [_trial("full-untied", "full, untied start", 1, attention="full", has_tied_start=False)] if is_long else []
    config = replace(_scheduled(DEMO, length), has_tied_start=is_long)
    trials = (masks, *_controls(n_chunk), *untied)
    return Study(f"fitted-{length}", f"fitted masks, {length:,} tokens", config, trials, 2)


# Values never seen in training, so that none can be learned by heart


def _fresh(length: int, n_chunk: int) -> Study:
    config = _scheduled(RepeatedTokensConfig(fresh_values=True), length, steps=2500, **WIDE)
    trials = (Trial("fitted", "fitted", UNSEEN, n_seeds=5), *_controls(n_chunk))
    return Study(f"fresh-{length}", f"fresh values, {length} tokens", config, trials, 2)


def _recall() -> Study:
    """All train on 64 tokens, where full attention learns; ``recall_lengths.py`` evaluates them on more."""
    masks = Trial("fitted", "fitted", RECALLED, n_seeds=3)
    *_, random, window, reformer = _controls(16)
    both = Trial("window-random", "window and random, its density", WINDOW | {"reweight": True}, "fitted")
    permuted = (
        Trial(f"{one.name}-permuted", f"{one.title}, permuted keys", one.settings | {"permutation": True}, None, n)
        for one, n in ((masks, 3), (FULL, None), (reformer, None))
    )
    trials = (masks, FULL, random, window, both, reformer, *permuted)
    return Study("recall", "associative recall, 64 tokens", RecallConfig(steps=600, cooldown=200), trials, 2)


# Long-range tasks; a run takes minutes on one CPU core

PENALTY = _trial("sbm-0.1", "SBM, λ = 0.1", density_weight=0.1)
BLACK = _trial("full-black", "full attention, black pixels count", attention="full", quirks=False)
FILMS = REDUCED["retrieval"].override(data="retrieval-films", length=256, batch_size=16, steps=400, learning_rate=1e-3)
LONG = REDUCED | {"retrieval": FILMS, "retrieval-topics": REDUCED["retrieval"]}
"""The study ``retrieval`` is on pairs of film reviews, where no attention leaves chance, ``retrieval-topics`` on
generated pairs."""


def _long_range(name: str, *more: Trial) -> Study:
    title = TASK_TITLES[LONG[name].task].split(":")[0] + (", topics" if name == "retrieval-topics" else "")
    equal = replace(RANDOM_EQUAL, title="random mask, SBM's density")
    return Study(name, title, LONG[name], (FULL, LINEAR, SBM, equal, *more), 2)


# Masks with equally many edges: the page on attention mass says on which tasks attention is concentrated, and on which
# it is spread over most keys


def _fitted_to(c: int) -> Trial:
    settings = {"preset": "fitted", "n_clusters": 256, "block_model_rate": 1e-2, "edges_per_query": float(c)}
    return Trial(f"fitted-{c}", f"fitted, c = {c}", settings)


def _equal_edges(name: str, cs: tuple[int, ...], width: int, n_seeds: int, **settings: Any) -> Study:
    alike = _long_range(name)
    random = [Trial(f"random-{c}", f"random, as c = {c}", CONTROL, density_of=f"fitted-{c}") for c in cs]
    window = Trial("window", "window", WINDOW | {"window": width})
    trials = (FULL, *map(_fitted_to, cs), *random, window, LINEAR, REFORMER)
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
    trials = (FULL, Trial("window", "window", WINDOW | {"window": 16}, n_seeds=2), *masks, LINEAR, REFORMER)
    return Study("mlm-edges", "masked language model, equal edges", REDUCED_MLM, trials, 1)


STUDIES = {
    study.name: study
    for study in (
        *(_demo(), _figure_4(), _figure_4_short(), _collapse()),
        *(_fitted(64, 256, n_chunk=16), _fitted(256, 1024, n_chunk=32), _fitted(1024, 2304, n_chunk=32)),
        *(_fresh(64, n_chunk=16), _fresh(256, n_chunk=32), _recall()),
        *(_long_range("listops", PENALTY, REFORMER), _long_range("retrieval")),
        *(_long_range(name, PENALTY) for name in ("text", "retrieval-topics", "image")),
        _long_range("pathfinder", PENALTY, BLACK),
        # without rotary positions and twice the steps, the attentions of ListOps can hardly be told apart
        _equal_edges("listops", (4, 2), 2, 3, positions="rotary", steps=2400),
        _equal_edges("pathfinder", (4, 2), 4, 3),
        _equal_edges("retrieval-topics", (8,), 8, 3),  # one seed said that masks matter there
        *(_equal_edges(name, (8,), 8, 1) for name in ("text", "retrieval", "image")),
        _language(),
    )
}
