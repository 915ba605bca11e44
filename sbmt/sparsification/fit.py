"""Fits block models to an unchanged network and measures how much of its attention the masks cover."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import cos, inf, pi
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sbmt.attention.inputs import Heads
from sbmt.block_model.fit import fit_loss
from sbmt.errors import SbmtError, check_sizes, is_number
from sbmt.graph.masks import zero_padding
from sbmt.graph.patterns import all_pairs
from sbmt.layers import SBMAttention
from sbmt.sparsification.convert import fitted_layers
from sbmt.types import AttentionOutput


@dataclass(frozen=True, eq=False)
class MaskQuality:
    r"""Measures of how well a layer's masks approximate full attention, each a mean over queries, ``(heads,)``.

    $a_{ij}$ are the weights of full attention and $w_{ij}$ those of reweighted masked attention, 0 without an edge.

    Attributes:
        attention_mass: The share of full attention along the edges, $\sum_{j: w_{ij} > 0} a_{ij}$, in [0, 1].
        density: The share of pairs that are edges, in [0, 1].
        error: The relative error $\lVert wV - aV \rVert / \lVert aV \rVert$ of the output, over all queries.
        effective_keys: The effective sample size $1 / \sum_j w_{ij}^2$ of a query's weights.
        attended_keys: The effective sample size under full attention, $1 / \sum_j a_{ij}^2$.
    """

    attention_mass: Tensor
    density: Tensor
    error: Tensor
    effective_keys: Tensor
    attended_keys: Tensor


@dataclass(frozen=True, eq=False)
class MaskReport:
    """The quality of each layer's masks and the losses of a fit; prints as a table with one row per head."""

    layers: dict[str, MaskQuality]
    losses: tuple[float, ...] = ()

    def mean(self, name: str) -> float:
        """Returns the mean of an attribute of :class:`MaskQuality` over all heads."""
        return float(torch.cat([getattr(quality, name) for quality in self.layers.values()]).mean())

    def __str__(self) -> str:
        rows = [f"{'layer':<40} head  attention mass  density  error  effective keys  of"]
        for name, quality in self.layers.items():
            for head, numbers in enumerate(zip(*(x.tolist() for x in vars(quality).values()), strict=True)):
                measures = "{:14.3f}  {:7.3f}  {:5.2f}  {:14.1f}  {:.1f}".format(*numbers)
                rows.append(f"{name:<40} {head:>4}  {measures}")
        return "\n".join(rows)


def fit_block_models(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    steps: int,
    learning_rate: float = 3e-2,
    n_queries: int = 64,
    n_measured: int = 4,
    on_step: Callable[[int, float], None] | None = None,
) -> MaskReport:
    """Fits the block models of a network to its attention while all other parameters are frozen.

    During the fit, every layer uses full attention without dropout, and its block model learns by likelihood from the
    attention of some queries (:func:`~sbmt.block_model.fit.fit_loss`).

    Args:
        model: The result of :func:`~sbmt.sparsify`, or a model trained with the preset ``fitted``.
        batches: Inputs of the model: tensors, tuples of arguments, or mappings of keyword arguments. They are repeated
            as often as needed.
        steps: Number of Adam steps, on one batch each; a few hundred are enough.
        learning_rate: The largest learning rate; it falls to zero along a cosine over the last third of the steps.
        n_queries: Number of random queries per sequence that each step uses; layers with causal masks use all queries.
        n_measured: Number of further batches on which the masks are measured.
        on_step: A function that is called after each step with the step's number, counted from 1, and its loss.

    Raises SbmtError if the model has no fitted masks, a number is out of range, or batches run out or reach no mask.
    Cost: for each step, a forward pass of the network with full attention, and O(n · n_queries) for the fit.
    """
    check_sizes(steps=steps, n_queries=n_queries, n_measured=n_measured)
    if not is_number(learning_rate) or not 0 < learning_rate < inf:
        raise SbmtError("learning_rate > 0", learning_rate, "start with 3e-2")
    layers = fitted_layers(model)
    blocks = [p for layer in layers.values() for p in layer.block_parameters()]
    optimizer = torch.optim.Adam(blocks, learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: falling(step / steps))
    supply = endless(batches)
    losses: list[float] = []
    with kept(layers.values(), "training"), kept(blocks, "requires_grad"), torch.enable_grad():
        for p in blocks:
            p.requires_grad_(True)
        for step in range(1, steps + 1):
            calls = seen_calls(model, next(supply))
            if not calls:
                do = "check how the model is called and, for Hugging Face models, set_attn_implementation"
                raise SbmtError(f"a batch reached none of the fitted masks: {do}")
            losses_of_calls = [fit_to(layers[name], heads, n_queries) for name in calls for heads in calls[name]]
            loss = torch.stack(losses_of_calls).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            if on_step is not None:
                on_step(step, losses[-1])
    return replace(measure_masks(model, [next(supply) for _ in range(n_measured)]), losses=tuple(losses))


def measure_masks(model: nn.Module, batches: Iterable[Any], masks: Mapping[str, nn.Module] | None = None) -> MaskReport:
    """Compares masks with full attention on the inputs that layers get, in all calls, when all use full attention.

    ``masks`` maps layer names to attention modules that are measured in place of the model's own, all in eval mode.
    Cost: O(n²) time and memory for each layer.
    """
    layers = fitted_layers(model)
    masks = layers if masks is None else masks
    if missing := layers.keys() - masks.keys():
        raise SbmtError("a mask for every fitted layer", f"none for {min(missing)}", f"pass all of {', '.join(layers)}")
    sums: dict[str, Any] = dict.fromkeys(layers, torch.zeros(7, 1))
    for batch in batches:
        for name, calls in seen_calls(model, batch).items():
            sums[name] = sum((_sums(masks[name], heads) for heads in calls), start=sums[name])
    if unseen := [name for name, numbers in sums.items() if not numbers[-1].any()]:
        do = "pass other batches, or sparsify only the part of the model that these batches reach"
        raise SbmtError("batches that reach every fitted layer", f"none that reach {unseen[0]}", do)
    report = {}
    for name, (mass, density, missed, size, effective, attended, n_queries) in sums.items():
        error = (missed / size.clamp(min=torch.finfo(size.dtype).tiny)).sqrt()
        means = mass / n_queries, density / n_queries
        report[name] = MaskQuality(*means, error, effective / n_queries, attended / n_queries)
    return MaskReport(report)


def seen_calls(model: nn.Module, batch: Any) -> dict[str, list[Heads]]:
    """Records the inputs of each call of each fitted layer while all layers use full attention without dropout."""
    calls: dict[str, list[Heads]] = defaultdict(list)
    layers = fitted_layers(model)

    def attend_all(name: str, *tokens: Tensor, **options: Any) -> AttentionOutput:
        query, key, value = tokens
        heads = Heads(query, key, value, options.get("query_mask"), options.get("key_mask"))
        calls[name].append(heads)
        everything = value.new_ones(query.shape[:2], dtype=torch.float32)
        values = full_attention(heads, layers[name].causal, layers[name].sink) @ value
        return AttentionOutput(values, everything, everything)

    with torch.no_grad(), kept(model.modules(), "training"), ExitStack() as stack:
        model.eval()
        for name, layer in layers.items():
            layer.forward = partial(attend_all, name)  # type: ignore[method-assign]
            stack.callback(vars(layer).pop, "forward")
        if isinstance(batch, Mapping):
            model(**batch)
        else:
            model(*(batch if isinstance(batch, (tuple, list)) else [batch]))
    return calls


def seen_heads(model: nn.Module, batch: Any) -> dict[str, Heads]:
    """Records the inputs of the last call of each fitted layer, using :func:`seen_calls`."""
    return {name: found[-1] for name, found in seen_calls(model, batch).items()}


def full_attention(
    heads: Heads, causal: bool = False, sink: Tensor | None = None
) -> Float[Tensor, "batch heads n_queries n_keys"]:
    """Computes the weights of full attention, zero for queries without keys; a sink takes part in the softmax."""
    scores = heads.query @ heads.key.mT / heads.query.shape[-1] ** 0.5
    if heads.key_mask is not None:
        scores = scores.masked_fill(~heads.key_mask[:, None, None, :], -torch.inf)
    if causal:
        n, m = scores.shape[2:]
        scores = scores.masked_fill(~scores.new_ones(n, m, dtype=torch.bool).tril(m - n), -torch.inf)
    if sink is not None:
        column = sink.detach().to(scores.dtype).view(-1, 1, 1).expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, column], -1)
    weights = scores.softmax(-1).nan_to_num()[..., : heads.key.shape[2]]
    return zero_padding(weights, heads.query_mask)


def fit_to(layer: SBMAttention, heads: Heads, n_queries: int) -> Float[Tensor, ""]:
    """Computes the loss of a layer's fit to the attention of ``n_queries`` random queries, or all if it is causal."""
    n, n_keys = heads.query.shape[2], heads.key.shape[2]
    rows = torch.arange(n) if layer.causal or n <= n_queries else torch.randperm(n)[:n_queries].sort().values
    query_mask = None if heads.query_mask is None else heads.query_mask[:, rows]
    heads = heads._replace(query=heads.query[:, :, rows], query_mask=query_mask)
    block_model = layer.train().block_model(heads.query, heads.key, query_mask, heads.key_mask)
    edges = all_pairs(block_model.shape, *block_model.masks, device=heads.query.device)
    is_edge = edges.to_dense()
    weights = full_attention(heads, layer.causal, layer.sink)[is_edge]
    is_near = None
    if layer.window is not None:
        near = (rows[:, None] - torch.arange(n_keys)).abs() <= layer.window // 2
        is_near = near.to(is_edge.device).expand_as(is_edge)[is_edge]
    assert layer.edges_per_query is not None  # required with learning="likelihood"
    # all pairs are visited, so none has to be explored
    return fit_loss(block_model, edges, block_model.edge_rate(edges), weights, layer.edges_per_query, 0.0, is_near)


def _sums(attention: nn.Module, heads: Heads) -> Float[Tensor, "numbers heads"]:
    """Returns sums over queries for :func:`measure_masks`, in float32 at least, since float16 ends at 65,504."""
    query, key, value, *masks = heads
    one_hot = torch.eye(key.shape[2], dtype=value.dtype, device=value.device).expand(*key.shape[:2], -1, -1)
    with torch.no_grad(), kept(attention.modules(), "training"):
        output = heads._replace(value=one_hot).attend(attention.eval())
    query, key, value, weights = (x.float() if x.itemsize < 4 else x for x in (query, key, value, output.values))
    wanted = full_attention(Heads(query, key, value, *masks), getattr(attention, "causal", False))
    real = zero_padding(torch.ones_like(query[..., :1]), heads.query_mask)[..., 0]  # batch heads n_queries
    per_query = (
        (wanted * (weights > 0)).sum(-1),
        output.density[..., None] * real,
        ((weights - wanted) @ value).square().sum(-1),
        (wanted @ value).square().sum(-1),
        _effective_keys(weights),
        _effective_keys(wanted),
        real,
    )
    return torch.stack([x.sum((0, 2)) for x in per_query])


def _effective_keys(weights: Tensor) -> Tensor:
    squares = weights.square().sum(-1)
    return torch.where(squares > 0, 1 / squares.clamp(min=torch.finfo(squares.dtype).tiny), 0.0)


@contextmanager
def kept(things: Iterable[Any], *names: str) -> Iterator[None]:
    """Restores the named attributes of all objects at the end of the ``with`` block."""
    before = [(thing, name, getattr(thing, name)) for thing in things for name in names]
    try:
        yield
    finally:
        for thing, name, value in before:
            setattr(thing, name, value)


def falling(done: float) -> float:
    """Returns the learning rate's factor after a share ``done`` of the steps, which falls to 0 over the last third."""
    return 1.0 if done < 2 / 3 else (1 + cos(3 * pi * (done - 2 / 3))) / 2


def endless(batches: Iterable[Any]) -> Iterator[Any]:
    """Repeats batches endlessly; raises SbmtError if there are none or they cannot be iterated over twice."""
    is_empty = True
    while True:
        for batch in batches:
            is_empty = False
            yield batch
        if is_empty or iter(batches) is batches:
            got = "none" if is_empty else "an exhausted iterator"
            raise SbmtError("batches for all steps", got, "pass a list or a DataLoader, or use fewer steps")
