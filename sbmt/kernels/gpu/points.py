"""Attention along fitted masks in plain PyTorch with static shapes, which ``sbmt bench`` times under ``torch.compile``.

Like the kernels, a row draws points of a Poisson process; they fill at most ``n_slots`` slots, and the rest are masked.
Unlike the kernels, which attend once to a key with −ln p added to its score, it attends to each point with −ln r added,
so that no point has to be compared with the others. The sums over points estimate the same sums over all keys.

It supports what the benchmark measures: as many keys as queries, at least two parts in a partition, self-loops, and a
sink, but neither padding nor causal masks. Gradients of memberships are not scaled.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

SAFE = 5.0  # standard deviations of the number of points by which the slots exceed its greatest mean


class PointsOutput(NamedTuple):
    """Values ``(batch, heads, n, d_value)``, the loss of the fit, and how many rows use all slots and may lack some."""

    values: Tensor
    auxiliary_loss: Tensor
    n_full: Tensor


class Rates(NamedTuple):
    """The factors of all rates: f partitions of s parts, crossed in f/2 groups."""

    row: Tensor  # batch heads n f s, each row's rates to all parts
    mass: Tensor  # batch heads f/2 s s, the sums of the keys' memberships in each group's clusters
    by_part: Tensor  # batch heads n f/2 s, a row's rates to the keys in each first part
    part: Tensor  # batch heads n f 2, the parts of keys
    weight: Tensor  # memberships of keys in them


def _memberships(layer: Any, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the tokens' two parts in each partition, their memberships in them, and those in all parts."""
    logits = layer.node_mlp(tokens.detach().to(layer.clusters.dtype)) @ layer.clusters.mT
    logits = logits.unflatten(-1, (2 * layer.n_groups, -1))  # batch heads n f s
    first = logits.max(-1, keepdim=True)
    second = logits.scatter(-1, first.indices, -torch.inf).max(-1, keepdim=True)
    part = torch.cat([first.indices, second.indices], -1)
    weight = torch.cat([first.values, second.values], -1).softmax(-1)
    is_in = part[..., None] == torch.arange(logits.shape[-1], device=part.device)
    return part, weight, (weight[..., None] * is_in).sum(-2)


def infer_rates(layer: Any, query: Tensor, key: Tensor, largest: float) -> Rates:
    """Infers rates from detached tokens as a fitted layer does, with e^largest as the limit on rates between parts."""
    centres = layer.clusters.unflatten(1, (2 * layer.n_groups, -1))
    log_rate = (layer.log_rate + layer.log_start).view(-1, 1, 1, 1)
    blocks = (centres @ centres.mT + log_rate / 2).clamp(max=largest).exp() / 2  # heads f s s
    (_, _, queries), (part, weight, keys) = _memberships(layer, query), _memberships(layer, key)
    row = torch.einsum("bhnfa,hfac->bhnfc", queries, blocks)
    mass = torch.einsum("bhnga,bhngc->bhgac", keys[..., 0::2, :], keys[..., 1::2, :])
    by_part = row[..., 0::2, :] * torch.einsum("bhgac,bhngc->bhnga", mass, row[..., 1::2, :])
    return Rates(row, mass, by_part, part, weight)


@torch.no_grad()
def draw_points(rates: Rates, extra: float, n_slots: int) -> tuple[Tensor, Tensor]:
    """Draws the points of each row: a first part, with it a second one, and then a key in both, or any key.

    Returns keys and which slots hold a point, both ``(batch, heads, n, n_slots)``. Pair (i, j) has a Poisson number of
    points, of mean r + ``extra``, unless all of a row's slots are used.
    """
    (n, n_groups, size), device = rates.by_part.shape[2:], rates.part.device
    ends = rates.by_part.flatten(3).cumsum(-1)  # batch heads n parts
    total = ends[..., -1:] + n * extra
    u = torch.rand(5, *total.shape[:3], n_slots, device=device)
    is_drawn = u[0].log().neg().cumsum(-1) < total
    place = u[1] * total
    first = torch.searchsorted(ends, place, right=True).clamp(max=n_groups * size - 1)
    group = (first // size)[..., None].expand(-1, -1, -1, -1, size)
    masses = rates.mass.flatten(2, 3)[:, :, None].expand(-1, -1, n, -1, -1)
    masses = masses.gather(3, first[..., None].expand(-1, -1, -1, -1, size))
    shares = (rates.row[..., 1::2, :].gather(3, group) * masses).cumsum(-1)  # batch heads n slots size
    second = (shares <= u[2][..., None] * shares[..., -1:]).sum(-1).clamp(max=size - 1)
    cluster = (first * size + second).flatten(2)

    parts = rates.part.unflatten(3, (n_groups, 2))  # of a group's two partitions
    number = torch.arange(n_groups, device=device)[:, None, None] * size**2
    number = number + parts[..., 0, :, None] * size + parts[..., 1, None, :]  # the four clusters of a key in each group
    number, order = number.flatten(2).sort(-1)
    weights = rates.weight.unflatten(3, (n_groups, 2))
    share = (weights[..., 0, :, None] * weights[..., 1, None, :]).flatten(2)
    until = pad(share.gather(2, order).double().cumsum(2), (1, 0))
    clusters = torch.arange(n_groups * size**2 + 1, device=device).expand(*number.shape[:2], -1).contiguous()
    before = until.gather(2, torch.searchsorted(number, clusters))
    low, high = before.gather(2, cluster), before.gather(2, cluster + 1)
    entry = torch.searchsorted(until, low + u[3].flatten(2) * (high - low), right=True) - 1
    keys = (order.gather(2, entry.clamp(max=order.shape[2] - 1)) // (4 * n_groups)).view_as(first)
    return torch.where(place < ends[..., -1:], keys, (u[4] * n).long()), is_drawn


def attend_to_points(
    layer: Any, query: Tensor, key: Tensor, value: Tensor, *, n_slots: int, smallest: float, largest: float
) -> PointsOutput:
    """Attends as a fitted layer does, in training if gradients are enabled; rates below ``smallest`` weigh like it."""
    rates, n = infer_rates(layer, query, key, largest), key.shape[2]
    extra = layer.exploration.probability(n) if torch.is_grad_enabled() else 0.0
    keys, is_drawn = draw_points(rates, extra, n_slots)
    n_full = is_drawn[..., -1].sum()
    loops = torch.arange(n, device=keys.device)[:, None].expand(*keys.shape[:3], 1)
    is_drawn = is_drawn & (keys != loops)  # since a loop is certain
    graphs = n * torch.arange(query.shape[0] * query.shape[1], device=keys.device).view(*query.shape[:2], 1, 1)
    at = graphs + keys  # batch heads n slots

    offsets = rates.row.shape[4] * torch.arange(rates.row.shape[3], device=keys.device)[:, None]
    part = (rates.part + offsets).flatten(0, 2)[at]  # batch heads n slots f 2
    to_parts = (rates.row.flatten(3).gather(3, part.flatten(3)).view_as(part) * rates.weight.flatten(0, 2)[at]).sum(-1)
    rate = (to_parts[..., 0::2] * to_parts[..., 1::2]).sum(-1) + extra
    bias = pad(rate.detach().clamp(min=smallest).log(), (1, 0))  # slot 0 is the loop
    at, real = torch.cat([graphs + loops, at], 3), torch.promote_types(key.dtype, torch.float32)
    scores = (query.to(real)[..., None, :] * key.to(real).flatten(0, 2)[at]).sum(-1) / query.shape[3] ** 0.5 - bias
    scores = scores.masked_fill(~pad(is_drawn, (1, 0), value=True), -torch.inf)
    sink = layer.sink.to(real).view(-1, 1, 1).expand(*scores.shape[:3], 1)
    weights = torch.cat([scores, sink], 3).softmax(3)[..., :-1]
    values = (weights[..., None] * value.to(real).flatten(0, 2)[at]).sum(3).to(value.dtype)
    loss = weights.new_zeros(())
    if torch.is_grad_enabled():
        gain = (weights.detach()[..., 1:] * rate.clamp(min=1e-30).log()).sum()
        loss = (rates.by_part.sum() - layer.edges_per_query * gain) / loops.numel()
    return PointsOutput(values, loss, n_full)


@lru_cache(1)
def compiled_for(
    layer: Any, query: Tensor, key: Tensor, smallest: float, largest: float
) -> Callable[..., PointsOutput]:
    """Compiles :func:`attend_to_points` for these tokens, with slots for nearly all points of all rows in training."""
    with torch.no_grad():
        most = infer_rates(layer, query, key, largest).by_part.sum((3, 4)).max().item()
    most += key.shape[2] * layer.exploration.probability(key.shape[2])
    n_slots = int(most + SAFE * most**0.5) + 1
    attend = partial(attend_to_points, layer, n_slots=n_slots, smallest=smallest, largest=largest)
    return torch.compile(attend, fullgraph=True, dynamic=False)
