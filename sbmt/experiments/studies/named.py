"""The named studies: ``sbmt study NAME`` trains all runs of one of them."""

from dataclasses import replace
from typing import Any

from sbmt.experiments.studies.study import Study, Trial
from sbmt.experiments.training.config import TrainingConfig
from sbmt.experiments.training.generated import SIZES, MultiQueryConfig, RecallConfig, RepeatedTokensConfig, fitted
from sbmt.experiments.training.tasks import REDUCED, REDUCED_MLM, TASK_TITLES, LanguageModelConfig

CONTROL = {"attention": "random_mask", "window": 0, "reweight": True, "sink": True}
WINDOW = {"attention": "random_mask", "mask_density": 0.0, "window": 8, "sink": True}
FITTED = {"preset": "fitted", "edges_per_query": 64.0}
WIDE = {"d_model": 64, "d_hidden": 64, "learning_rate": 1.5e-3}
FULL = Trial("full", "full attention", {"attention": "full"})
LINEAR = Trial("linear", "linear attention", {"attention": "linear"})
REFORMER = Trial("reformer", "Reformer", {"attention": "reformer"})
SBM = Trial("sbm", "SBM")
NO_LOOPS = Trial("no-loops", "SBM without self-loops", {"self_loops": False})
RANDOM_EQUAL = Trial("random-equal", "random, SBM's density", {"attention": "random_mask"}, density_of="sbm")
DEMO = SIZES["demo"]
STUDIES: dict[str, Study] = {}


def _add(name: str, title: str, config: TrainingConfig, trials: tuple[Trial, ...], n_seeds: int) -> None:
    STUDIES[name] = Study(name, title, config, trials, n_seeds)


# Repeated tokens

fast = {"learning_rate": 3e-3, "cooldown": 333}
masks = {"n_clusters": 256, "block_model_rate": 1e-2}
trials: tuple[Trial, ...] = (
    replace(FULL, settings=FULL.settings | fast),
    replace(SBM, title="SBM, as published"),
    Trial("fitted", "SBM, fitted", FITTED | fast | masks),
    Trial("random-equal", "random, fitted density", CONTROL | fast, density_of="fitted"),
)
_add("demo", "four attention mechanisms", DEMO, trials, 1)


def _baselines(size: int, n_landmarks: int, n_chunk: int) -> tuple[Trial, ...]:
    nystromformer = {"attention": "nystromformer", "n_landmarks": n_landmarks}
    return (
        replace(LINEAR, title="linear"),
        Trial("linformer", f"Linformer, {size}", {"attention": "linformer", "n_projected": size}),
        Trial("reformer", "Reformer", {"attention": "reformer", "n_chunk": n_chunk}),
        Trial("performer", f"Performer, {size}", {"attention": "performer", "n_features": size}),
        Trial("nystromformer", f"Nyströmformer, {n_landmarks}", nystromformer),
    )


config: TrainingConfig = replace(SIZES["paper"], batch_size=64)  # the paper's 256 would take four times as long
trials = (replace(FULL, n_seeds=3), replace(SBM, n_seeds=3), NO_LOOPS, *_baselines(256, 32, 32))
_add("figure4", "Figure 4, 256 tokens", config, trials, 1)

trials = (
    *(replace(trial, n_seeds=n) for trial, n in ((FULL, 5), (SBM, 5), (NO_LOOPS, 2), (RANDOM_EQUAL, 2))),
    Trial("sbm-algorithm-1", "SBM, Algorithm 1", {"preset": "faithful"}),
    Trial("sbm-static", "SBM by position", {"attention": "sbm_static", "self_loops": True}),
    *_baselines(64, 16, 16),
    Trial("nystromformer-64", "Nyströmformer, 64", {"attention": "nystromformer", "n_landmarks": 64}),
)
_add("figure4-64", "Figure 4, 64 tokens", replace(DEMO, steps=2000), trials, 1)

poisson = Trial("poisson-loops", "SBM with the Poisson link", {"link": "poisson"}, n_seeds=5)
alone = Trial("poisson", "Poisson link without self-loops", {"self_loops": False, "link": "poisson"}, n_seeds=5)
_add("collapse", "ten seeds", DEMO, (SBM, NO_LOOPS, poisson, alone), 10)


def _scheduled(config: TrainingConfig, length: int, **changed: Any) -> TrainingConfig:
    """Returns a task's configuration with the schedule of fitted masks and 4096 tokens per step."""
    schedule = fitted(**changed)
    del schedule["n_clusters"]
    return replace(config, **schedule, length=length, batch_size=4096 // length)


def _controls(n_chunk: int) -> tuple[Trial, ...]:
    """Returns the baselines for fitted masks, starting with full attention."""
    return (
        FULL,
        Trial("random", "random, its density", CONTROL, density_of="fitted"),
        Trial("window", "window, 9 tokens", WINDOW),
        Trial("reformer", "Reformer", {"attention": "reformer", "n_chunk": n_chunk}),
    )


# At 1,024 tokens, even full attention stays at chance for 2,000 steps unless query and key projections start as copies,
# which is always the case in Reformer. Therefore, all methods start in this way at this length.
for length, n_clusters, n_chunk in ((64, 256, 16), (256, 1024, 32), (1024, 2304, 32)):
    trials = Trial("fitted", "fitted", FITTED | {"n_clusters": n_clusters}, n_seeds=5), *_controls(n_chunk)
    if is_long := length >= 1024:
        untied = {"attention": "full", "has_tied_start": False}
        trials = *trials, Trial("full-untied", "full, untied start", untied, n_seeds=1)
    config = replace(_scheduled(DEMO, length), has_tied_start=is_long)
    _add(f"fitted-{length}", f"fitted masks, {length:,} tokens", config, trials, 2)

# Test values do not occur in training, so that none can be memorised

for length, n_chunk in ((64, 16), (256, 32)):
    unseen = {"preset": "fitted", "n_clusters": 1024, "edges_per_query": 80.0}
    config = _scheduled(RepeatedTokensConfig(fresh_values=True), length, steps=2500, **WIDE)
    trials = Trial("fitted", "fitted", unseen, n_seeds=5), *_controls(n_chunk)
    _add(f"fresh-{length}", f"fresh values, {length} tokens", config, trials, 2)

# All trials train on 64 tokens, where full attention learns; ``recall_lengths.py`` evaluates them on longer sequences

recalled = Trial("fitted", "fitted", {"preset": "fitted", "edges_per_query": 24.0, "n_clusters": 4096}, n_seeds=3)
*_, random, window, reformer = _controls(16)
both = Trial("window-random", "window and random, its density", WINDOW | {"reweight": True}, "fitted")
permuted = (
    replace(one, name=f"{one.name}-permuted", title=f"{one.title}, permuted keys", settings=settings)
    for one in (recalled, FULL, reformer)
    for settings in [one.settings | {"permutation": True}]
)
trials = (recalled, FULL, random, window, both, reformer, *permuted)
_add("recall", "associative recall, 64 tokens", RecallConfig(steps=600, cooldown=200), trials, 2)

# Long-range tasks; a run takes minutes on one CPU core

PENALTY = Trial("sbm-0.1", "SBM, λ = 0.1", {"density_weight": 0.1})
BLACK = Trial("full-black", "full attention, black pixels count", {"attention": "full", "quirks": False})
FILMS = REDUCED["retrieval"].override(data="retrieval-films", length=256, batch_size=16, steps=400, learning_rate=1e-3)
LONG = REDUCED | {"retrieval": FILMS, "retrieval-topics": REDUCED["retrieval"]}
"""Configurations by study: ``retrieval`` uses pairs of film reviews, on which no attention mechanism beats chance, and
``retrieval-topics`` uses generated pairs."""

further = {"listops": (PENALTY, REFORMER), "retrieval": (), "pathfinder": (PENALTY, BLACK)}
for name, config in LONG.items():
    title = TASK_TITLES[config.task].split(":")[0] + (", topics" if name == "retrieval-topics" else "")
    equal = replace(RANDOM_EQUAL, title="random mask, SBM's density")
    _add(name, title, config, (FULL, LINEAR, SBM, equal, *further.get(name, (PENALTY,))), 2)

# Masks with equal numbers of edges; the page on attention mass tells where attention is concentrated or spread out


def _fitted_to(c: int) -> Trial:
    settings = {"preset": "fitted", "n_clusters": 256, "block_model_rate": 1e-2, "edges_per_query": float(c)}
    return Trial(f"fitted-{c}", f"fitted, c = {c}", settings)


for name, cs, width, n_seeds in (
    ("listops", (4, 2), 2, 3),
    ("pathfinder", (4, 2), 4, 3),
    ("retrieval-topics", (8,), 8, 3),  # the choice of mask mattered on one seed
    *((name, (8,), 8, 1) for name in ("text", "retrieval", "image")),
):
    # without rotary positions and twice the steps, attention mechanisms hardly differ on ListOps
    settings = {"positions": "rotary", "steps": 2400} if name == "listops" else {}
    equal_edges = [Trial(f"random-{c}", f"random, as c = {c}", CONTROL, density_of=f"fitted-{c}") for c in cs]
    near = Trial("window", "window", WINDOW | {"window": width})
    trials = (FULL, *map(_fitted_to, cs), *equal_edges, near, LINEAR, REFORMER)
    alike = STUDIES[name]
    _add(f"{name}-edges", f"{alike.title}, equal edges", alike.config.override(**settings), trials, n_seeds)

# The masked language model without a window, with a window of 16, and with this window but no reweighting

compared: list[Trial] = []
for name, title, changed, n_seeds in (
    ("", "{}", {"window": 0}, 1),
    ("-near", "window and {}", {"window": 16}, 1),
    ("-near-plain", "window and {}, not reweighted", {"window": 16, "reweight": False}, 2),
):
    fit = _fitted_to(8).settings | changed
    compared += [
        Trial(f"fitted{name}", title.format("fitted, c = 8"), fit, n_seeds=n_seeds),
        Trial(f"random{name}", title.format("random"), CONTROL | changed, f"fitted{name}", n_seeds),
    ]
near = Trial("window", "window", WINDOW | {"window": 16}, n_seeds=2)
trials = (FULL, near, *compared, LINEAR, REFORMER)
_add("mlm-edges", "masked language model, equal edges", REDUCED_MLM, trials, 1)

# Causal attention: multi-query recall, which one layer learns thanks to a convolution, and a language model on bytes

multi_query = MultiQueryConfig(positions="none", convolution=3, n_pairs=16, vocab_size=512, embedding_std=0.3)
multi_query = replace(multi_query, steps=600, cooldown=200, learning_rate=3e-3)
causal_fits = [Trial(f"fitted-{c}", f"fitted, c = {c}", FITTED | {"edges_per_query": float(c)}) for c in (16, 14, 8, 4)]
equal = Trial("random", "random, as c = 16", CONTROL, density_of="fitted-16")
trials = (
    *(FULL, *causal_fits[:3], equal, LINEAR, causal_fits[3]),
    Trial("window", "window 16", WINDOW | {"window": 16}),
    Trial("both", "window 8 and 4 random keys", CONTROL | {"window": 8, "mask_density": 1 / 8}),
)
_add("causal-recall", "multi-query recall, 64 tokens", multi_query, trials, 3)

trials = (
    FULL,
    Trial("fitted", "window 16 and fitted, c = 16", {"preset": "fitted", "edges_per_query": 16.0, "window": 16}),
    Trial("window", "window 32", WINDOW | {"window": 32}),
    Trial("random", "window 16 and 16 random keys", CONTROL | {"window": 16, "mask_density": 1 / 8}),
    Trial("near", "window 16", WINDOW | {"window": 16}),
    LINEAR,
)
small: dict[str, Any] = {"batch_size": 8, "steps": 4000, "n_heads": 2, "dev_examples": 100, "test_examples": 400}
language_model = LanguageModelConfig(data="corpus-bytes", learning_rate=2e-3, eval_every=500, **small)
_add("causal-text", "language model, 256 bytes", language_model, trials, 1)
