"""Whether masks that were fitted have learned anything: how many clusters they use, and how much they see."""

import warnings
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from torch import Tensor

from sbmt.attention import edge_attention
from sbmt.block_model.model import probability, reweighting_bias
from sbmt.layers import SBMAttention
from sbmt.samplers import law_of, sample_edges

FEWEST_CLUSTERS = 1.5
"""Effective clusters of a group below which it has put all tokens into one."""
LEAST_GAIN = 2.0
"""Attention seen, in multiples of what a random mask of the same density sees, below which a mask is no better."""
LEAST_STEPS = 100
"""Shorter trainings are not judged: nothing can be expected of their masks."""
DENSEST = 0.4
"""Denser masks are not judged by what they see: none can see twice as much as a random one by far."""


@torch.no_grad()
def effective_clusters(layer: SBMAttention, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
    """The exponential of the entropy of the clusters' shares of all tokens, ``(heads, groups)``; 1 is one cluster."""
    model = layer.block_model(tokens, tokens, mask, mask)
    share = model.key_membership.sum((0, 2)).unflatten(-1, (layer.n_groups, -1))
    share = share / share.sum(-1, keepdim=True).clamp(min=torch.finfo(share.dtype).tiny)
    return torch.special.entr(share).sum(-1).exp()


@torch.no_grad()
def attention_seen(
    layer: SBMAttention, query: Tensor, key: Tensor, value: Tensor, masks: tuple[Tensor | None, Tensor | None]
) -> tuple[Tensor, Tensor]:
    r"""The share of full attention that falls on drawn edges, and the share of pairs that are drawn, for each head.

    An edge of attention a and probability p stands for a/p: of $\sum a_{ij} p_{ij}$ against $\sum a_{ij}$, both sums
    over drawn edges with reweighted attention are estimates.
    """
    model = layer.block_model(query, key, *masks)
    edges = sample_edges(model, layer.sampler, generator=torch.Generator().manual_seed(0))
    rate = model.edge_rate(edges)
    bias = reweighting_bias(probability(law_of(layer.sampler, layer.link), rate))
    _, weights = edge_attention(query, key, value, edges, bias=bias, sink=layer.sink, return_weights=True)
    head = edges.rows() // edges.shape[2] % edges.shape[1]
    zeros = weights.new_zeros(edges.shape[1])
    seen = zeros.index_add(0, head, weights * (-bias).exp().to(weights.dtype))
    return seen / zeros.index_add(0, head, weights).clamp(min=torch.finfo(weights.dtype).tiny), edges.density().mean(0)


class WatchForCollapse(Callback):
    """Looks at every block model that learns by likelihood in the last step of training, and warns if it collapsed."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._seen: dict[str, tuple[SBMAttention, tuple[Tensor, ...], dict[str, Any]]] = {}
        self._hooks: list[Any] = []

    def on_train_batch_start(self, trainer: Trainer, module: Any, *_: Any) -> None:
        """Keeps what the layers are given in the last step."""
        if trainer.global_step != self.steps - 1 or self.steps < LEAST_STEPS or self._hooks:
            return
        for name, layer in module.model.named_modules():
            if isinstance(layer, SBMAttention) and layer.learning == "likelihood":

                def keep(layer: Any, given: Any, named: Any, name: str = name) -> None:
                    self._seen[name] = layer, tuple(t.detach() for t in given), named

                self._hooks.append(layer.register_forward_pre_hook(keep, with_kwargs=True))

    def on_train_end(self, trainer: Trainer, module: Any) -> None:
        """Warns of each layer whose mask knows nothing."""
        for hook in self._hooks:
            hook.remove()
        for name, (layer, tokens, named) in self._seen.items():
            if trainer.is_global_zero and (trouble := self._trouble(layer, tokens, named)):
                do = "try more edges_per_query, or a smaller block_model_rate"
                warnings.warn(f"the block model of {name} {trouble}: {do}", stacklevel=2)

    def _trouble(self, layer: SBMAttention, tokens: tuple[Tensor, ...], named: dict[str, Any]) -> str:
        masks = named.get("query_mask"), named.get("key_mask")
        clusters = effective_clusters(layer, tokens[1], masks[1])
        if (clusters < FEWEST_CLUSTERS).any(-1).any():
            return f"has put all tokens into {float(clusters.min()):.1f} clusters of a group"
        query, key, value = tokens
        seen, density = attention_seen(layer, query, key, value, masks)
        if ((seen < LEAST_GAIN * density) & (density < DENSEST)).any():
            least = int((seen - LEAST_GAIN * density).argmin())
            return f"sees {float(seen[least]):.1%} of the attention with {float(density[least]):.1%} of all pairs"
        return ""
