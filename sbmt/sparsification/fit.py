"""Fitting block models to a network that is left as it is, and measuring what their masks see."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from math import cos, inf, pi
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sbmt.block_model.fit import auxiliary_loss
from sbmt.errors import SbmtError, check_sizes, is_number
from sbmt.graph.masks import zero_padding
from sbmt.sparsification.convert import fitted_layers
from sbmt.types import AttentionOutput

BETAS = 0.9, 0.99  # of Adam: rates are exponentials, whose gradients are now and then far larger, best soon forgotten


@dataclass(frozen=True, eq=False)
class MaskQuality:
    r"""What the masks of a layer see of the attention they stand for: means over queries, ``(heads,)`` each.

    With full attention $a_{ij}$ and the weights $w_{ij}$ that a mask leaves and reweights, 0 off the mask:

    Attributes:
        attention_mass: The share of attention along the mask's edges, $\sum_{j: w_{ij} > 0} a_{ij}$, in [0, 1].
        density: The share of pairs that are edges, in [0, 1].
        error: $\lVert wV - aV \rVert / \lVert aV \rVert$ of the layer's output, over all queries.
        effective_keys: The effective sample size $1 / \sum_j w_{ij}^2$ of a query's weights.
        attended_keys: The same of full attention, $1 / \sum_j a_{ij}^2$.
    """

    attention_mass: Tensor
    density: Tensor
    error: Tensor
    effective_keys: Tensor
    attended_keys: Tensor


@dataclass(frozen=True, eq=False)
class MaskReport:
    """The quality of a network's masks, by the names of its layers; printed, a table with a row for every head.

    ``losses`` are those of every step, if the masks were fitted just before.
    """

    layers: dict[str, MaskQuality]
    losses: tuple[float, ...] = ()

    def mean(self, name: str) -> float:
        """The mean over all heads of one of the attributes of :class:`MaskQuality`."""
        return float(torch.cat([getattr(quality, name) for quality in self.layers.values()]).mean())

    def __str__(self) -> str:
        rows = [f"{'layer':<40} head  attention mass  density  error  effective keys  of"]
        for name, quality in self.layers.items():
            for head, numbers in enumerate(zip(*(x.tolist() for x in vars(quality).values()), strict=True)):
                mass, density, error, effective, attended = numbers
                measures = f"{mass:14.3f}  {density:7.3f}  {error:5.2f}  {effective:14.1f}  {attended:.1f}"
                rows.append(f"{name:<40} {head:>4}  {measures}")
        return "\n".join(rows)


def fit_block_models(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    steps: int,
    learning_rate: float = 1e-2,
    n_measured: int = 4,
    on_step: Callable[[int, float], None] | None = None,
) -> MaskReport:
    """Fits the block models of a network to its attention, with everything else frozen.

    While it runs, every layer attends all pairs, as the network was trained to, and its block model learns by
    likelihood where that attention goes (:func:`~sbmt.block_model.fit.fit_loss`). Dropout is off.

    Args:
        model: From :func:`~sbmt.sparsify`, or trained with the preset ``fitted``. Only its block models change.
        batches: What the model is called with: tensors, tuples of arguments, or mappings of named ones, gone through as
            often as it takes.
        steps: Steps of Adam, one batch each; some hundreds are enough.
        learning_rate: The largest; it falls to zero over the last third, along a cosine.
        n_measured: How many of the batches that follow the masks are measured on.
        on_step: Called after each step with its number, from 1, and its loss.

    Raises:
        SbmtError: If the model has no fitted masks, a number is out of range, the batches run out or do not reach all
            masks, or gradients are off.

    Cost: O(n²) for each of ``steps`` passes forward with full attention, and backward through the block models.
    """
    check_sizes(steps=steps, n_measured=n_measured)
    if not is_number(learning_rate) or not 0 < learning_rate < inf:
        raise SbmtError("learning_rate > 0", learning_rate, "1e-2 is a start")
    blocks = [p for layer in fitted_layers(model).values() for p in layer.block_parameters()]
    optimizer = torch.optim.Adam(blocks, learning_rate, betas=BETAS)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: falling(step / steps))
    supply = endless(batches)
    losses: list[float] = []
    with attending_all(model) as calls:
        for step in range(1, steps + 1):
            calls.clear()
            _call(model, next(supply))
            if not calls:
                do = "check how the model is called, and a Hugging Face model's set_attn_implementation"
                raise SbmtError("batches that reach a fitted mask", "none reached", do)
            loss = fitting_loss(calls)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            if on_step is not None:
                on_step(step, losses[-1])
    measured = measure_masks(model, [next(supply) for _ in range(n_measured)])
    return MaskReport(measured.layers, tuple(losses))


def measure_masks(model: nn.Module, batches: Iterable[Any], masks: Mapping[str, nn.Module] | None = None) -> MaskReport:
    """Compares masks with full attention, on what each layer of a network is given when all attend all pairs.

    ``masks`` may name other attentions to measure in the place of the model's own, by layer; all are in eval mode.
    Cost: O(n²) time and memory for each layer: this is an instrument.

    Raises:
        SbmtError: If the model has no fitted masks, ``masks`` leaves out one, or the batches do not reach all layers.
    """
    layers = fitted_layers(model)
    masks = layers if masks is None else masks
    if missing := layers.keys() - masks.keys():
        raise SbmtError("a mask for every fitted layer", f"none for {min(missing)}", f"name all: {', '.join(layers)}")
    sums: dict[str, Any] = dict.fromkeys(layers, torch.zeros(7, 1))
    for batch in batches:
        for name, heads in seen_heads(model, batch).items():
            sums[name] = sums[name] + _sums(masks[name], heads)
    if unseen := [name for name, numbers in sums.items() if not numbers[-1].any()]:
        do = "pass some that do, or sparsify only the part of the model that they go through"
        raise SbmtError("batches that reach every fitted layer", f"none that reach {unseen[0]}", do)
    report = {}
    for name, (*means, missed, size, n_queries) in sums.items():
        mass, density, effective, attended = (x / n_queries for x in means)
        error = (missed / size.clamp(min=torch.finfo(size.dtype).tiny)).sqrt()
        report[name] = MaskQuality(mass, density, error, effective, attended)
    return MaskReport(report)


class Heads(NamedTuple):
    """What an attention is called with: query, key, value ``(batch, heads, n, d)``, masks ``(batch, n)`` or None."""

    query: Tensor
    key: Tensor
    value: Tensor
    query_mask: Tensor | None = None
    key_mask: Tensor | None = None

    def attend(self, attention: nn.Module) -> AttentionOutput:
        """What another attention makes of it."""
        return attention(self.query, self.key, self.value, query_mask=self.query_mask, key_mask=self.key_mask)


Calls = dict[str, list[tuple[Heads, AttentionOutput]]]
"""By the name of a layer: what it was called with, and what it returned."""


def seen_heads(model: nn.Module, batch: Any) -> dict[str, Heads]:
    """What each fitted layer of a model is given, in its last call, while all of them attend all pairs, by name."""
    with torch.no_grad(), attending_all(model) as calls:
        _call(model, batch)
    return {name: found[-1][0] for name, found in calls.items()}


def full_attention(heads: Heads) -> Float[Tensor, "batch heads n_queries n_keys"]:
    """The weights of full attention, zero where there is nothing to attend."""
    scores = heads.query @ heads.key.mT / heads.query.shape[-1] ** 0.5
    if heads.key_mask is not None:
        scores = scores.masked_fill(~heads.key_mask[:, None, None, :], -torch.inf)
    return zero_padding(scores.softmax(-1).nan_to_num(), heads.query_mask)


def _sums(attention: nn.Module, heads: Heads) -> Float[Tensor, "numbers heads"]:
    """Sums over queries of what :func:`measure_masks` averages, in float32 at least: float16 ends at 65,504."""
    query, key, value, *masks = heads
    one_hot = torch.eye(key.shape[2], dtype=value.dtype, device=value.device).expand(*key.shape[:2], -1, -1)
    with torch.no_grad(), kept(attention.modules(), "training"):
        output = heads._replace(value=one_hot).attend(attention.eval())
    query, key, value, weights = (x.float() if x.itemsize < 4 else x for x in (query, key, value, output.values))
    wanted = full_attention(Heads(query, key, value, *masks))
    real = zero_padding(torch.ones_like(query[..., :1]), heads.query_mask)[..., 0]  # batch heads n_queries
    per_query = (
        (wanted * (weights > 0)).sum(-1),
        output.density[..., None] * real,
        _effective_keys(weights),
        _effective_keys(wanted),
        ((weights - wanted) @ value).square().sum(-1),
        (wanted @ value).square().sum(-1),
        real,
    )
    return torch.stack([x.sum((0, 2)) for x in per_query])


def _effective_keys(weights: Tensor) -> Tensor:
    squares = weights.square().sum(-1)
    return torch.where(squares > 0, 1 / squares.clamp(min=torch.finfo(squares.dtype).tiny), 0.0)


@contextmanager
def attending_all(model: nn.Module) -> Iterator[Calls]:
    """Meanwhile fitted layers attend all pairs, dropout is off, and only block models take gradients; yields calls."""
    layers = fitted_layers(model)
    as_before = kept(model.modules(), "training"), kept(model.parameters(), "requires_grad")
    with as_before[0], as_before[1], kept(layers.values(), "is_dense", "dropout"), watched(layers) as calls:
        model.eval().requires_grad_(False)
        for layer in layers.values():
            layer.train()
            layer.is_dense, layer.dropout = True, 0.0
            for p in layer.block_parameters():
                p.requires_grad_(True)
        yield calls


@contextmanager
def watched(layers: Mapping[str, nn.Module]) -> Iterator[Calls]:
    """Yields a mapping that meanwhile every call of one of these layers is added to."""
    calls: Calls = defaultdict(list)

    def keep(name: str, _: nn.Module, tokens: Any, options: dict[str, Any], output: AttentionOutput) -> None:
        query, key, value = tokens
        calls[name].append((Heads(query, key, value, options.get("query_mask"), options.get("key_mask")), output))

    with ExitStack() as hooks:
        for name, layer in layers.items():
            hooks.callback(layer.register_forward_hook(partial(keep, name), with_kwargs=True).remove)
        yield calls


@contextmanager
def kept(things: Iterable[Any], *names: str) -> Iterator[None]:
    """Afterwards these attributes are what they were before."""
    before = [(thing, name, getattr(thing, name)) for thing in things for name in names]
    try:
        yield
    finally:
        for thing, name, value in before:
            setattr(thing, name, value)


def fitting_loss(calls: Calls) -> Tensor:
    """The sum of all auxiliary losses; raises SbmtError if a layer learns nothing from any of its calls."""
    outputs = [[output for _, output in found] for found in calls.values()]
    if not all(any(output.auxiliary_loss.requires_grad for output in found) for found in outputs):
        do = "do without torch.no_grad() and eval(), and checkpoint activations with use_reentrant=False"
        raise SbmtError("an auxiliary loss with a gradient from every fitted layer", "one without", do)
    return auxiliary_loss([output for found in outputs for output in found])


def falling(done: float) -> float:
    """The share of the learning rate after this share of all steps: it falls to zero over the last third."""
    return 1.0 if done < 2 / 3 else (1 + cos(3 * pi * (done - 2 / 3))) / 2


def endless(batches: Iterable[Any]) -> Iterator[Any]:
    """Batches, again and again; raises SbmtError if there are none, or they cannot be gone through twice."""
    is_empty = True
    while True:
        for batch in batches:
            is_empty = False
            yield batch
        if is_empty or iter(batches) is batches:
            got = "none" if is_empty else "an iterator that has come to its end"
            raise SbmtError("batches for all steps", got, "pass a list or a DataLoader, or take fewer steps")


def _call(model: nn.Module, batch: Any) -> Any:
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, (tuple, list)) else model(batch)
