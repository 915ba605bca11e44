r"""Three questions about fitted masks that no setting asks; writes ``results/fitted_variants.json``.

- Is attention the best target? An edge that is left out changes a query's output by $a_{ij} \lVert v_j - o_i \rVert$,
  so that edges drawn in proportion to this leave the least variance for their number.
- Must the block model read detached queries and keys?
- Must tokens start in few parts, rather than in all alike?

``python results/measure/fitted_variants.py`` trains each variant at 64 tokens, on the seeds of the study
``fitted-parts``, whose rows *all of it* and *c = 32* differ in nothing else. It takes some minutes and is resumable.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sbmt.attention import edge_attention
from sbmt.block_model.fit import fit_loss
from sbmt.block_model.model import BlockModel, probability, reweighting_bias
from sbmt.command import run_command
from sbmt.experiments.files import write_json
from sbmt.experiments.studies.named import STUDIES
from sbmt.experiments.studies.study import Study, Trial, run_study, summary
from sbmt.graph.edges import EdgeList
from sbmt.layers import SBMAttention, register_attention
from sbmt.layers.registry import PRESETS
from sbmt.layers.sbm import SHARPNESS
from sbmt.samplers import law_of
from sbmt.types import AttentionOutput

RESULT = Path(__file__).resolve().parents[1] / "fitted_variants.json"
RUNS = RESULT.parents[1] / "runs" / "fitted-variants"


class InfluenceAttention(SBMAttention):
    """Fitted masks with another target; it attends twice, the second time for the weights."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, **options: Any) -> AttentionOutput:
        """As in the parent, with another auxiliary loss."""
        output = super().forward(query, key, value, **options | {"return_edges": True})
        edges, extra = output.edges, self.exploration
        assert edges is not None and self.edges_per_query is not None and not isinstance(extra, float)
        exploration = extra.probability(key.shape[2]) if self.training else 0.0
        block_model = self.block_model(query, key, options.get("query_mask"), options.get("key_mask"))
        rate = block_model.edge_rate(edges)
        is_self = edges.rows() % edges.shape[2] == edges.keys
        with torch.no_grad():
            drawn_with = probability(law_of(self.sampler, self.link), rate + exploration)
            bias = reweighting_bias(drawn_with.masked_fill(is_self, 1.0))
            out, weights = edge_attention(query, key, value, edges, bias=bias, sink=self.sink, return_weights=True)
            targets = influence(weights.masked_fill(is_self, 0.0), value, out, edges)
        loss = fit_loss(block_model, edges, rate, targets, self.edges_per_query, exploration)
        return replace(output, auxiliary_loss=loss)


def influence(weights: Tensor, value: Tensor, out: Tensor, edges: EdgeList) -> Tensor:
    r"""$a_{ij} \lVert v_j - o_i \rVert$ for every edge, scaled so that a head's sum is that of its attention."""
    rows = edges.rows()
    distance = (value.flatten(0, 2)[edges.key_rows()] - out.flatten(0, 2)[rows]).norm(dim=1)
    head = rows // edges.shape[2]
    none = weights.new_zeros(edges.shape[0] * edges.shape[1])
    before, after = none.index_add(0, head, weights), none.index_add(0, head, weights * distance)
    return weights * distance * (before / after.clamp(min=1e-12))[head]


class AttachedAttention(SBMAttention):
    """Fitted masks whose fit moves queries and keys, too."""

    def block_model(self, *tokens: Any) -> BlockModel:
        """As in the parent, which detaches tokens for the sake of likelihood alone."""
        self.learning = "straight_through"
        try:
            return super().block_model(*tokens)
        finally:
            self.learning = "likelihood"


class FlatAttention(SBMAttention):
    """Fitted masks whose tokens start in the parts of a partition nearly alike."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        with torch.no_grad():
            for parameter in self.node_mlp.parameters():
                parameter.div_(10 * SHARPNESS)


VARIANTS: dict[str, type[SBMAttention]] = {
    "influence": InfluenceAttention,
    "attached": AttachedAttention,
    "flat": FlatAttention,
}


def study() -> Study:
    """Trials with a class of their own, and otherwise those of ``fitted-parts``."""
    parts = STUDIES["fitted-parts"]
    fitted = {name: value for name, value in PRESETS["fitted"].items() if name != "exploration"}
    fitted |= {"extra_keys": PRESETS["fitted"]["exploration"].per_query, "n_clusters": 256}
    trials = [
        Trial(name, title, {"attention": attention} | fitted | {"edges_per_query": c})
        for name, title, attention, c in (
            ("c-64", "target a‖v − o‖, c = 64", "influence", 64.0),
            ("c-32", "target a‖v − o‖, c = 32", "influence", 32.0),
            ("attached", "queries and keys not detached", "attached", 64.0),
            ("flat", "tokens start in all parts alike", "flat", 64.0),
        )
    ]
    return replace(parts, name="fitted-variants", title="variants of fitted masks", trials=tuple(trials))


def main() -> None:
    """Trains and writes."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    for name, attention in VARIANTS.items():
        register_attention(name, attention)
    asked = study()
    write_json(RESULT, summary(asked, run_study(asked, RUNS)))


if __name__ == "__main__":
    run_command(main, "fitted_variants")
