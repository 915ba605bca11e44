"""The study of associative recall: which attention finds the one item that a query asks for?"""

from typing import Any

from sbmt.experiments.studies.repeated_tokens import CONTROL, FULL, WINDOW
from sbmt.experiments.studies.study import Study, Trial
from sbmt.experiments.training.tasks import RecallConfig

FITTED: dict[str, Any] = {"preset": "fitted", "edges_per_query": 24.0, "n_clusters": 4096}
_REFORMER = {"attention": "reformer", "n_chunk": 16}
_ROUTING = {"attention": "routing", "n_centroids": 32}
_PERMUTED = {"permutation": True}
RECALL_STUDY = Study(
    "recall",
    "associative recall, 64 tokens",
    RecallConfig(steps=600, cooldown=200),
    (
        Trial("fitted", "fitted", FITTED, n_seeds=3),
        FULL,
        Trial("random", "random, its density", CONTROL, density_of="fitted"),
        Trial("window", "window, 9 tokens", WINDOW),
        Trial("window-random", "window and random, its density", WINDOW | {"reweight": True}, "fitted"),
        Trial("reformer", "Reformer", _REFORMER),
        Trial("full-scaled", "full attention, scores × s ln n", FULL.settings | {"is_log_scaled": True}),
        Trial("routing", "k-means routing", _ROUTING),
        Trial("oracle", "oracle: the item and itself", FULL.settings | {"is_oracle": True}),
        Trial("fitted-permuted", "fitted, permuted keys", FITTED | _PERMUTED, n_seeds=3),
        Trial("full-permuted", "full attention, permuted keys", FULL.settings | _PERMUTED),
        Trial("reformer-permuted", "Reformer, permuted keys", _REFORMER | _PERMUTED),
        Trial("routing-permuted", "k-means routing, permuted keys", _ROUTING | _PERMUTED),
    ),
    2,
)
"""All train on 64 tokens, where full attention learns; :mod:`results.measure.recall_lengths` evaluates them on more."""
