"""The study of associative recall: which attention finds the one item that a query asks for?"""

from sbmt.experiments.studies.repeated_tokens import CONTROL, FULL, PARTS, WINDOW
from sbmt.experiments.studies.study import Study, Trial
from sbmt.experiments.training.recall import RecallConfig

_PRICED = {"density_weight": 0.1, "density_kind": "expected", "density_ramp": 300}
RECALL_STUDY = Study(
    "recall",
    "associative recall, 64 tokens",
    RecallConfig(steps=600, cooldown=200),
    (
        Trial("fitted", "fitted", {"preset": "fitted", "edges_per_query": 32.0, "n_clusters": 256}),
        FULL,
        Trial("straight-through", "straight-through", PARTS | _PRICED | {"n_clusters": 256}),
        Trial("random", "random, its density", CONTROL, density_of="fitted", n_seeds=1),
        Trial("window", "window, 9 tokens", WINDOW),
        Trial("window-random", "window and random, its density", WINDOW | {"reweight": True}, "fitted", 1),
        Trial("reformer", "Reformer", {"attention": "reformer", "n_chunk": 16}, n_seeds=1),
    ),
    2,
)
"""All train on 64 tokens, where full attention learns; :mod:`results.measure.recall_lengths` evaluates them on more."""
