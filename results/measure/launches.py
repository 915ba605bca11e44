"""Runs a layer's GPU kernels without a GPU: each launch is only recorded, with the tensors that it reads or writes.

This works because no shape depends on the drawn edges.
"""

from typing import Any
from unittest import mock

import torch
import triton
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from sbmt import build_attention

HEADS, WIDTH = 8, 64
FREE = ("empty", "new_empty", "detach", "_unsafe_view", "alias", "lift", "promote_types", "scalar_tensor", "zero_")


class Count(TorchDispatchMode):
    """A mode that counts launches, device synchronisations, and bytes read and written."""

    def __init__(self) -> None:
        super().__init__()
        self.launches = self.questions = self.bytes = self.forward = 0
        self.kernels: list[tuple[Any, tuple[Any, ...], dict[str, int]]] = []

    def launch(self, given: Any) -> None:
        """Counts one launch, which reads or writes each of the given tensors once."""
        self.launches += 1
        self.bytes += sum({id(x): x.nbytes for x in tree_leaves(given) if isinstance(x, torch.Tensor)}.values())

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out, name = function(*args, **kwargs or {}), function.__name__
        self.questions += "_local_scalar_dense" in name or "nonzero" in name
        if not function.is_view and not name.startswith(FREE):
            self.launch((args, kwargs, out))
        return out

    def run(self, kernel: Any, *args: Any, grid: Any, warmup: bool, **options: int) -> None:
        """Replaces Triton's launch of a kernel. The kernel is recorded without its tensors, to be built later."""
        types = tree_map(lambda x: x.dtype if isinstance(x, torch.Tensor) else x, args)
        self.kernels.append((kernel, types, options))
        self.launch(args)


def run_once(
    n: int,
    is_training: bool,
    has_masks: bool = False,
    dtype: torch.dtype = torch.float32,
    preset: str = "fitted",
    **settings: Any,
) -> Count:
    """Runs a forward pass of one layer, or a training step with output gradients like those in a model."""
    masks = [torch.ones(1, n, dtype=torch.bool) if has_masks else None for _ in range(2)]
    layer: Any = build_attention("sbm", preset=preset, d_head=WIDTH, n_heads=HEADS, **settings)
    layer.to(dtype).train(is_training)
    if preset == "fitted":
        layer.log_start.fill_(-1.0)
    tokens = [torch.randn(1, HEADS, n, WIDTH, dtype=torch.bfloat16, requires_grad=is_training) for _ in range(3)]
    gradients, counter = [torch.randn_like(tokens[0]), torch.ones(())], Count()
    places = {"layers.sbm.has_kernels_for": True, "layers.functional.has_kernels_for": True}
    try:
        for place, answer in (places | {"block_model.crossed.can_run_on": False}).items():
            mock.patch(f"sbmt.{place}", return_value=answer).start()
        mock.patch("sbmt.block_model.crossed.in_range", lambda name, x, upper: x).start()
        mock.patch.object(
            type(triton.jit(run_once)), "run", lambda *args, **options: counter.run(*args, **options)
        ).start()
        with torch.set_grad_enabled(is_training), counter:
            found = layer(*tokens, query_mask=masks[0], key_mask=masks[1])
            counter.forward = counter.launches
            if is_training:
                loss = found.auxiliary_loss if preset == "fitted" else found.density.mean()
                torch.autograd.backward([found.values, loss], gradients)
    finally:
        mock.patch.stopall()
    return counter
