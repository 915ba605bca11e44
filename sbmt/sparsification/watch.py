"""Running a network as it was trained, and seeing what its attentions are given."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sbmt.block_model.fit import auxiliary_loss
from sbmt.errors import SbmtError
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


Outputs = dict[nn.Module, list[AttentionOutput]]
"""By layer: what its calls returned."""


@contextmanager
def outputs_of(layers: Iterable[nn.Module]) -> Iterator[Outputs]:
    """Yields a mapping that meanwhile every call of one of these layers adds its output to."""
    outputs: Outputs = defaultdict(list)
    hooks = [layer.register_forward_hook(lambda layer, _, output: outputs[layer].append(output)) for layer in layers]
    try:
        yield outputs
    finally:
        for hook in hooks:
            hook.remove()


def fitting_loss(outputs: Outputs) -> Tensor:
    """The sum of all auxiliary losses.

    Raises:
        SbmtError: If a layer learns nothing from any of its calls.
    """
    losses = {layer: [output.auxiliary_loss for output in found] for layer, found in outputs.items()}
    if not all(any(loss.requires_grad for loss in found) for found in losses.values()):
        do = "do without torch.no_grad() and eval(), and checkpoint activations with use_reentrant=False"
        raise SbmtError("an auxiliary loss with a gradient from every fitted layer", "one without", do)
    return auxiliary_loss([output for found in outputs.values() for output in found])


@contextmanager
def attending_all(model: nn.Module) -> Iterator[Outputs]:
    """Meanwhile fitted layers attend all pairs, dropout is off, and nothing but their block models takes gradients.

    Yields a mapping that every call of a fitted layer adds its output to.
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
    """What each fitted layer of a model is given while all of them attend all pairs, by the layer's name.

    The model stays as it was. Of a layer that is called more than once it is the last call that counts.
    """
    layers = fitted_layers(model)
    before = [(layer, layer.is_dense, layer.log_start.clone()) for layer in layers.values()]
    seen: dict[str, Heads] = {}

    def keep(name: str, arguments: tuple[Tensor, ...], options: dict[str, Any]) -> None:
        query, key, value = arguments
        seen[name] = Heads(query, key, value, options.get("query_mask"), options.get("key_mask"))

    hooks = [
        layer.register_forward_pre_hook(lambda _, a, o, name=name: keep(name, a, o), with_kwargs=True)
        for name, layer in layers.items()
    ]
    try:
        with torch.no_grad(), attending_all(model):
            call(model, batch)
    finally:
        for hook in hooks:
            hook.remove()
        for layer, was_dense, log_start in before:
            layer.is_dense = was_dense
            layer.log_start.copy_(log_start)
    return seen
