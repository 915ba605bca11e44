"""What a fitted layer asks of a GPU, counted on any machine; writes ``results/gpu/counted.json``.

``python results/measure/gpu.py`` runs a layer of the preset *fitted* (c = 16, 8 heads of 64, bfloat16, one sequence)
with every Triton kernel replaced by a note that it was launched, which works since no shape depends on what is drawn.
It counts launches, questions to the device, and the bytes of the tensors that operations read and write, each once,
and builds the kernels for compute capabilities 8.0 and 9.0 to see how many registers they take. A few minutes.
"""

from typing import Any
from unittest import mock

import torch
import triton
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from results.measure.common import run, write
from sbmt import build_attention
from sbmt.kernels.gpu import attend, clusters, draw

LENGTHS, HEADS, WIDTH = (4096, 16384), 8, 64
KERNELS = {
    clusters: ("_choose_kernel", "_choose_backward_kernel", "_rates_kernel", "_count_kernel", "_place_kernel"),
    attend: ("_attend_kernel", "_attend_backward_kernel"),
}
FREE = ("empty", "new_empty", "detach", "_unsafe_view", "alias", "lift", "promote_types", "scalar_tensor", "zero_")
CALLERS = "block_model.crossed", "layers.functional"


class Count(TorchDispatchMode):
    """Launches, questions to the device, and bytes read and written."""

    def __init__(self) -> None:
        super().__init__()
        self.launches = self.kernels = self.questions = self.bytes = 0

    def launch(self, given: Any) -> None:
        """Counts one, which reads or writes each of these tensors once."""
        self.launches += 1
        self.bytes += sum(x.untyped_storage().nbytes() for x in tensors(given))

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out, name = function(*args, **kwargs or {}), function.__name__
        self.questions += "_local_scalar_dense" in name or "nonzero" in name
        if not function.is_view and not name.startswith(FREE):
            self.launch((args, kwargs, out))
        return out

    def __getitem__(self, grid: Any) -> Any:
        """As a kernel is called, which leaves parts at 0."""
        self.kernels += 1
        return lambda *args, **_: self.launch([x.data.zero_() if x.dtype == torch.int16 else x for x in tensors(args)])


def tensors(tree: Any) -> list[Tensor]:
    """All of them, each once."""
    return list({id(x): x for x in tree_leaves(tree) if isinstance(x, Tensor)}.values())


def count(n: int, is_training: bool) -> dict[str, int]:
    """What a forward pass, or a step, of one layer launches, reads and writes."""
    layer = build_attention("sbm", preset="fitted", d_head=WIDTH, n_heads=HEADS).train(is_training)
    layer.log_start.fill_(-1.0)
    tokens = [torch.randn(1, HEADS, n, WIDTH, dtype=torch.bfloat16, requires_grad=is_training) for _ in range(3)]
    counter = Count()
    places = [(module, name) for module, names in KERNELS.items() for name in names]
    patches = [mock.patch.object(module, name, counter) for module, name in places]
    patches += [mock.patch(f"sbmt.{place}.has_kernels_for", lambda x: True) for place in CALLERS]
    patches.append(mock.patch("sbmt.block_model.crossed.can_run_on", lambda device: False))
    patches.append(mock.patch("sbmt.block_model.crossed.in_range", lambda name, x, upper: x))
    for patch in patches:
        patch.start()
    try:
        with torch.set_grad_enabled(is_training), counter:
            found = layer(*tokens)
            if is_training:
                (found.values.float().sum() + found.auxiliary_loss).backward()
    finally:
        mock.patch.stopall()
    return {name: getattr(counter, name) for name in ("launches", "kernels", "questions", "bytes")}


def build(capability: int) -> dict[str, dict[str, int]]:
    """Registers and spilled bytes of each thread, and shared memory, of the kernels that attend."""
    real, x, i = "*fp32", "*bf16", "i32"
    members = clusters.Members("*i32", real, "*i32", "*i32", real)
    given = draw.Draw(real, "*i16", real, members, "*i1", "*i1", "*i32", "*i64", i, "fp32", i, i, i, i, i)
    inputs = attend.Inputs(x, x, x, real, "fp32", "fp32")
    sizes = draw.Sizes(16, 4, 64, 16, 18, clusters.CHUNK, False, False)
    fixed = {"s": sizes, "HAS_SINK": True, "D": WIDTH, "WIDTH": WIDTH, "DV": WIDTH, "WIDTH_V": WIDTH, "TILE": draw.TILE}
    types = {"draw": given, "inputs": inputs, "out": x, "to_query": x, "grad_out": x, "degrees": "*i32"}
    found = {}
    for name in KERNELS[attend]:
        kernel = getattr(attend, name)
        signature = {a: "constexpr" if a in fixed else types.get(a, real) for a in kernel.arg_names}
        constants = {(place,): fixed[a] for place, a in enumerate(kernel.arg_names) if a in fixed}
        source = ASTSource(kernel, signature=signature, constexprs=constants)
        built = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": 1})
        found[name.strip("_")] = {"shared": built.metadata.shared, "bytes": len(built.asm["cubin"])}
    return found


def main() -> None:
    """Counts and builds."""
    ways = {"forward": False, "step": True}
    counts = {way: {str(n): count(n, is_training) for n in LENGTHS} for way, is_training in ways.items()}
    write("gpu/counted", {"counted": counts, "built": {str(cc): build(cc) for cc in (80, 90)}})


if __name__ == "__main__":
    run(main, "gpu")
