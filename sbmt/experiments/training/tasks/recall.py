"""Settings of a run on associative recall, and the oracle that knows which item is asked for."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sbmt.attention import edge_attention
from sbmt.errors import SbmtError
from sbmt.experiments.data.batches import Batch
from sbmt.experiments.data.recall import NO_ANSWER, check_recall, matching_edges, sample_recall
from sbmt.experiments.training.tasks.generated import GeneratedConfig
from sbmt.graph.edges import EdgeList
from sbmt.models import Encoder, ModelOutput, TokenTagger
from sbmt.registration import option
from sbmt.types import AttentionOutput

RECALL = "recall"
_TOKENS_EVALUATED = 4096  # at once


@dataclass(frozen=True)
class RecallConfig(GeneratedConfig):
    """Everything that decides a run on associative recall, apart from versions and hardware.

    The length is the number of pairs, queries and distractors, whatever is given.
    """

    task: str = option(RECALL, "always recall")
    n_pairs: int = option(16, "items, a key and a value each, that are asked for")
    n_queries: int = option(16, "keys that ask for their value")
    n_distractors: int = option(32, "items that are not asked for")
    n_keys: int = option(128, "keys to draw from")
    n_values: int = option(32, "values to draw from")
    permutation: bool = option(False, "ask for each key by the next one")
    is_oracle: bool = option(False, "with attention full: attend nothing but the item that is asked for, and itself")
    learning_rate: float = option(3e-3, "Adam's learning rate")
    d_model: int = option(64, "width")
    d_hidden: int = option(64, "width inside the MLPs")

    def __post_init__(self) -> None:
        check_recall(self.n_pairs, self.n_queries, self.n_distractors, self.n_keys, self.n_values)
        object.__setattr__(self, "length", self.n_pairs + self.n_queries + self.n_distractors)
        super().__post_init__()
        if self.is_oracle and (self.attention != "full" or self.options.is_log_scaled):
            raise SbmtError("an oracle with attention 'full' and no options", self.attention, "leave one of them out")

    def make_model(self, info: dict[str, Any]) -> nn.Module:
        """A tagger of tokens that hold a key and a value side by side."""
        vocab_size = self.n_keys + self.n_values + 1  # and the mark of a query
        encoder = self.make_encoder(vocab_size, None, n_ids=2)
        if self.is_oracle:
            settings: dict[str, Any] = {"permutation": self.permutation, "n_heads": self.n_heads}
            find_edges = partial(matching_edges, n_keys=self.n_keys, n_values=self.n_values, **settings)
            return OracleTagger(encoder, self.n_values, find_edges)
        return TokenTagger(encoder, self.n_values)

    def sample(self, n: int, generator: torch.Generator) -> Batch:
        """Draws sequences; every query has a label."""
        sizes = self.n_pairs, self.n_queries, self.n_distractors, self.n_keys, self.n_values
        tokens, answers = sample_recall(n, *sizes, permutation=self.permutation, generator=generator)
        is_query = answers != NO_ANSWER
        return Batch(tokens, torch.ones_like(is_query), answers[is_query], selected=is_query)

    def loss(self, logits: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
        """Cross entropy of every query."""
        return nn.functional.cross_entropy(logits.float(), labels, reduction=reduction)

    @property
    def evaluation_batch(self) -> int:  # type: ignore[override]
        """Fewer where sequences are long, since attention to all pairs needs memory for them."""
        return max(1, _TOKENS_EVALUATED // self.length)


class OracleAttention(nn.Module):
    """Softmax attention along the edges that it was given before the call, whatever the input."""

    edges: EdgeList

    def forward(
        self,
        query: Float[Tensor, "batch heads n_queries d"],
        key: Float[Tensor, "batch heads n_keys d"],
        value: Float[Tensor, "batch heads n_keys d_value"],
        *,
        query_mask: Bool[Tensor, "batch n_queries"] | None = None,
        key_mask: Bool[Tensor, "batch n_keys"] | None = None,
        generator: torch.Generator | None = None,
        return_edges: bool = False,
    ) -> AttentionOutput:
        """Attends; the edges decide which tokens are real."""
        values, density = edge_attention(query, key, value, self.edges), self.edges.density()
        return AttentionOutput(values, density, density, self.edges if return_edges else None)


class OracleTagger(TokenTagger):
    """A tagger whose layers attend along edges that follow from the tokens by a rule of the task, not learned.

    Args:
        encoder: What reads the tokens; its attentions are replaced.
        n_labels: Logits per token.
        find_edges: From tokens to edges.
    """

    def __init__(self, encoder: Encoder, n_labels: int, find_edges: Callable[[Tensor], EdgeList]) -> None:
        super().__init__(encoder, n_labels)
        self.find_edges, self.oracle = find_edges, OracleAttention()
        for block in encoder.blocks:
            block.get_submodule("attention").attention = self.oracle

    def forward(
        self, tokens: Tensor, mask: Tensor | None = None, *, selected: Tensor | None = None, **options: Any
    ) -> ModelOutput:
        """See :class:`~sbmt.models.TokenTagger`."""
        self.oracle.edges = self.find_edges(tokens)
        return super().forward(tokens, mask, selected=selected, **options)
