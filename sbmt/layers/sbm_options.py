"""The options of SBM attention, and its presets."""

from dataclasses import dataclass
from typing import Any, get_args

from sbmt.attention.inputs import GateRule
from sbmt.block_model.exploration import ExtraKeys, check_exploration
from sbmt.block_model.fit import Learning
from sbmt.block_model.link import LINKS
from sbmt.errors import SbmtError, check_sizes
from sbmt.layers.sbm import Membership
from sbmt.registration import option
from sbmt.samplers import SAMPLERS

PRESETS: dict[str, dict[str, Any]] = {
    "recommended": {"sampler": "exact", "gate_rule": "score", "exploration": 0.01, "self_loops": True},
    "faithful": {"sampler": "fastrg", "gate_rule": "score", "exploration": 0.01, "self_loops": False},
    "fitted": {
        "learning": "likelihood",
        "edges_per_query": 16.0,
        "link": "poisson",
        "membership": "crossed",
        "n_groups": 4,
        "reweight": True,
        "sink": True,
        "self_loops": True,
        "exploration": ExtraKeys(3),
    },
}
"""Settings of ``"sbm"``. ``recommended``: an exact law and self-loops, without which training loses the mask on some
seeds; self-loops need as many keys as queries. ``faithful``: the paper to the letter, Algorithm 1 included. ``fitted``:
ours, a sparse mask that learns by likelihood."""


@dataclass(frozen=True)
class StaticSBMOptions:
    """Options of :class:`~sbmt.layers.SBMAttention` without a preset; None takes the layer's own default.

    Raises:
        SbmtError: If a number is out of range, or both ``exploration`` and ``extra_keys`` are given.
    """

    n_clusters: int = option(128, "clusters per head")
    sampler: str | None = option(None, "edge law", SAMPLERS)
    gate_rule: str | None = option(None, "where the gate enters: score (equation 9) or weight", get_args(GateRule))
    link: str | None = option(None, "from memberships to edge probabilities", LINKS)
    membership: str | None = option(None, "how tokens belong to clusters", get_args(Membership))
    is_diagonal: bool = option(False, "let each cluster meet only itself: a diagonal block matrix")
    self_loops: bool | None = option(None, "whether every token attends itself")
    window: int | None = option(None, "also attend the tokens at most window / 2 places away")
    exploration: float | None = option(None, "exploration δ while training")
    extra_keys: float | None = option(None, "instead of δ: expected extra keys per query while training")
    learning: str | None = option(None, "what teaches the block model", get_args(Learning))
    edges_per_query: float | None = option(None, "with learning=likelihood: edges that a query's attention is worth")
    n_groups: int | None = option(None, "groups of clusters, each with a softmax of its own")
    n_active: int | None = option(None, "crossed memberships: parts of each partition that a token is in")
    reweight: bool | None = option(None, "whether a drawn edge weighs 1/p times as much")
    sink: bool | None = option(None, "whether a learned logit without a value joins each softmax")
    shared_graph: bool | None = option(None, "whether the heads of a layer share one block model and one mask")

    def __post_init__(self) -> None:
        check_sizes(n_clusters=self.n_clusters)
        check_exploration(self.exploration or 0.0)
        if self.extra_keys is not None:
            ExtraKeys(self.extra_keys)
            if self.exploration is not None:
                raise SbmtError("exploration or extra_keys", "both", "leave one out")

    def arguments(self) -> dict[str, Any]:
        """Arguments of the layer's constructor."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        if (extra_keys := given.pop("extra_keys", None)) is not None:
            given["exploration"] = ExtraKeys(extra_keys)
        return given


@dataclass(frozen=True)
class SBMOptions(StaticSBMOptions):
    """Options of :class:`~sbmt.layers.SBMAttention`; None takes the preset's value, or else the layer's own default."""

    preset: str = option("recommended", "named settings, which the other options override", PRESETS)
