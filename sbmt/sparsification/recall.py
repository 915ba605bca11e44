"""How much of full attention a mask sees, and what that does to a layer's output."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sbmt.errors import SbmtError
from sbmt.graph.padding import zero_padding
from sbmt.sparsification.convert import fitted_layers
from sbmt.sparsification.watch import Heads, seen_heads


@dataclass(frozen=True, eq=False)
class MaskQuality:
    r"""What the masks of a layer see of the attention they stand for: means over queries, ``(heads,)`` each.

    With full attention $a_{ij}$ and the weights $w_{ij}$ that a mask leaves and reweights, 0 off the mask:

    Attributes:
        recall: The share of attention that goes along the mask's edges, $\sum_{j: w_{ij} > 0} a_{ij}$, in [0, 1].
        density: The share of pairs that are edges, in [0, 1].
        error: $\lVert wV - aV \rVert / \lVert aV \rVert$ of the layer's output, over all queries.
        effective_keys: The effective sample size $1 / \sum_j w_{ij}^2$ of a query's weights.
        attended_keys: The same of full attention, $1 / \sum_j a_{ij}^2$.
    """

    recall: Float[Tensor, " heads"]
    density: Float[Tensor, " heads"]
    error: Float[Tensor, " heads"]
    effective_keys: Float[Tensor, " heads"]
    attended_keys: Float[Tensor, " heads"]


@dataclass(frozen=True, eq=False)
class MaskReport:
    """The quality of a network's masks.

    Attributes:
        layers: By the names of the layers.
    """

    layers: dict[str, MaskQuality]

    def mean(self, name: str) -> float:
        """The mean over all heads of one of the attributes of :class:`MaskQuality`."""
        return float(torch.cat([getattr(quality, name) for quality in self.layers.values()]).mean())

    def __str__(self) -> str:
        """A table with a row for every head."""
        rows = [f"{'layer':<40} head  recall  density  error  effective keys  of"]
        for name, quality in self.layers.items():
            for head, (recall, density, error, effective, attended) in enumerate(
                zip(*(x.tolist() for x in vars(quality).values()), strict=True)
            ):
                keys = f"{effective:14.1f}  {attended:.1f}"
                rows.append(f"{name:<40} {head:>4}  {recall:6.3f}  {density:7.3f}  {error:5.2f}  {keys}")
        return "\n".join(rows)


def measure_masks(model: nn.Module, batches: Iterable[Any], masks: Mapping[str, nn.Module] | None = None) -> MaskReport:
    """Compares masks with full attention, on what each layer of a network is given when all attend all pairs.

    Args:
        model: One with fitted masks, see :func:`~sbmt.sparsify`.
        batches: What it is called with, see :func:`~sbmt.fit_block_models`.
        masks: Other attentions, by the names of the layers that they stand for; None measures the model's own. They are
            measured in eval mode.

    Raises:
        SbmtError: If the model has no fitted masks, ``masks`` leaves out one, there are no batches, or they do not
            reach all layers.

    Cost: O(n²) time and memory for each layer: this is an instrument.
    """
    layers = fitted_layers(model)
    masks = layers if masks is None else masks
    if missing := layers.keys() - masks.keys():
        raise SbmtError("a mask for every fitted layer", f"none for {min(missing)}", f"name all: {', '.join(layers)}")
    sums: dict[str, list[Tensor]] = {name: [] for name in layers}
    n_queries = dict.fromkeys(layers, 0)
    with torch.no_grad():
        for batch in batches:
            seen = seen_heads(model, batch)
            for name, heads in seen.items():
                sums[name].append(_sums(masks[name], heads))
                n_queries[name] += int(_is_real(heads.query_mask, heads.query).sum())
    if not any(n_queries.values()):
        raise SbmtError("batches to measure masks on", "none with a real token", "pass some")
    if unseen := [name for name, n in n_queries.items() if not n]:
        do = "pass some that do, or sparsify only the part of the model that they go through"
        raise SbmtError("batches that reach every fitted layer", f"none that reach {unseen[0]}", do)
    return MaskReport({name: _quality(torch.stack(parts).sum(0), n_queries[name]) for name, parts in sums.items()})


def _quality(sums: Float[Tensor, "numbers heads"], n_queries: int) -> MaskQuality:
    recall, density, effective, attended, missed, size = sums
    error = (missed / size.clamp(min=torch.finfo(size.dtype).tiny)).sqrt()
    return MaskQuality(recall / n_queries, density / n_queries, error, effective / n_queries, attended / n_queries)


def full_attention(heads: Heads) -> Float[Tensor, "batch heads n_queries n_keys"]:
    """The weights of full attention, zero where there is nothing to attend."""
    scores = heads.query @ heads.key.mT / heads.query.shape[-1] ** 0.5
    if heads.key_mask is not None:
        scores = scores.masked_fill(~heads.key_mask[:, None, None, :], -torch.inf)
    return zero_padding(scores.softmax(-1).nan_to_num(), heads.query_mask)


def _sums(attention: nn.Module, heads: Heads) -> Float[Tensor, "numbers heads"]:
    """Sums over queries of recall, density, effective keys, attended keys, squared error and squared size.

    They are at least float32: half precision holds no sum above 65,504.
    """
    batch, n_heads = heads.query.shape[:2]
    n_keys = heads.key.shape[2]
    one_hot = torch.eye(n_keys, dtype=heads.value.dtype, device=heads.value.device).expand(batch, n_heads, -1, -1)
    before = [(module, module.training) for module in attention.modules()]
    try:
        output = heads.attend(attention.eval(), one_hot)  # whose values are the weights
    finally:
        for module, was_training in before:
            module.training = was_training
    dtype = torch.promote_types(heads.value.dtype, torch.float32)
    heads = replace(heads, query=heads.query.to(dtype), key=heads.key.to(dtype), value=heads.value.to(dtype))
    weights, wanted = output.values.to(dtype), full_attention(heads)
    real = _is_real(heads.query_mask, heads.query)[:, None, :, None]
    per_query = [
        (wanted * (weights > 0)).sum(-1),
        output.density[..., None] * real[..., 0],
        _effective_keys(weights),
        _effective_keys(wanted),
        ((weights - wanted) @ heads.value).square().sum(-1),
        (wanted @ heads.value).square().sum(-1),
    ]
    return torch.stack([x.sum((0, 2)) for x in per_query])


def _effective_keys(weights: Tensor) -> Tensor:
    squares = weights.square().sum(-1)
    return torch.where(squares > 0, 1 / squares.clamp(min=torch.finfo(squares.dtype).tiny), 0.0)


def _is_real(mask: Tensor | None, tokens: Tensor) -> Bool[Tensor, "batch n"]:
    return torch.ones_like(tokens[:, 0, :, 0], dtype=torch.bool) if mask is None else mask
