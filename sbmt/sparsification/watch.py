"""Running a network as it was trained, and seeing what its attentions are given."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sbmt.sparsification.convert import fitted_layers
from sbmt.types import AttentionOutput


@dataclass(frozen=True, eq=False)
class Heads:
    """What an attention is called with: query, key, value ``(batch, heads, n, d)``, masks ``(batch, n)`` or None."""

    query: Tensor
    key: Tensor
    value: Tensor
    query_mask: Tensor | None
    key_mask: Tensor | None

    def attend(self, attention: nn.Module, value: Tensor | None = None) -> AttentionOutput:
        """What another attention makes of it, with these values or others."""
        value = self.value if value is None else value
        masks = {"query_mask": self.query_mask, "key_mask": self.key_mask}
        output: AttentionOutput = attention(self.query, self.key, value, **masks)
        return output


def call(model: nn.Module, batch: Any) -> Any:
    """Calls a model with a tensor, a sequence of arguments, or a mapping of named ones."""
    if isinstance(batch, Mapping):
        return model(**batch)
    if isinstance(batch, (tuple, list)):
        return model(*batch)
    return model(batch)


@contextmanager
def outputs_of(layers: Iterable[nn.Module]) -> Iterator[list[AttentionOutput]]:
    """Yields a list that meanwhile every call of one of these layers adds its output to."""
    outputs: list[AttentionOutput] = []
    hooks = [layer.register_forward_hook(lambda _, __, output: outputs.append(output)) for layer in layers]
    try:
        yield outputs
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def attending_all(model: nn.Module) -> Iterator[list[AttentionOutput]]:
    """Meanwhile fitted layers attend all pairs, dropout is off, and nothing but their block models takes gradients.

    Yields a list that every call of a fitted layer adds its output to.
    """
    layers = fitted_layers(model).values()
    before = [(module, module.training) for module in model.modules()]
    frozen = [p for p in model.parameters() if p.requires_grad]
    dropouts = [layer.dropout for layer in layers]
    model.eval()
    for p in frozen:
        p.requires_grad_(False)
    for layer in layers:
        layer.train()
        layer.is_dense, layer.dropout = True, 0.0
        for p in layer.block_parameters():
            p.requires_grad_(True)
    try:
        with outputs_of(layers) as outputs:
            yield outputs
    finally:
        for layer, dropout in zip(layers, dropouts, strict=True):
            layer.is_dense, layer.dropout = False, dropout
        for p in model.parameters():
            p.requires_grad_(False)
        for p in frozen:
            p.requires_grad_(True)
        for module, was_training in before:
            module.training = was_training


def seen_heads(model: nn.Module, batch: Any) -> dict[str, Heads]:
    """What each fitted layer of a model is given while all of them attend all pairs, by the layer's name."""
    seen: dict[str, Heads] = {}

    def keep(name: str, arguments: tuple[Tensor, ...], options: dict[str, Any]) -> None:
        query, key, value = arguments
        seen[name] = Heads(query, key, value, options.get("query_mask"), options.get("key_mask"))

    hooks = [
        layer.register_forward_pre_hook(lambda _, a, o, name=name: keep(name, a, o), with_kwargs=True)
        for name, layer in fitted_layers(model).items()
    ]
    try:
        with torch.no_grad(), attending_all(model):
            call(model, batch)
    finally:
        for hook in hooks:
            hook.remove()
    return seen
