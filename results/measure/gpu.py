"""What a fitted layer asks of a GPU, counted on any machine; writes ``results/gpu/counted.json``.

``python results/measure/gpu.py`` runs a layer of the preset *fitted* (c = 16, 8 heads of 64, bfloat16, one sequence)
with every Triton kernel replaced by a note that it was launched, which works since no shape depends on what is drawn.
It counts launches, questions to the device, and the bytes of the tensors that operations read and write, each once. It
builds every kernel for compute capabilities 8.0 and 9.0, also for masks and causal order, and lets ptxas tell how many
registers a thread takes and how much of them it spills. A few minutes.
"""

import re
import subprocess
import tempfile
from pathlib import Path
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
from sbmt.kernels.gpu import attend, clusters, draw, memberships, totals

LENGTHS, HEADS, WIDTH, EDGES, EXTRA = (4096, 16384, 65536), 8, 64, 17, 8  # edges a query: c and itself; extra keys
TYPES = {"float32": "*fp32", "bfloat16": "*bf16", "int16": "*i16", "int32": "*i32", "int64": "*i64", "bool": "*i1"}
FREE = ("empty", "new_empty", "detach", "_unsafe_view", "alias", "lift", "promote_types", "scalar_tensor", "zero_")
MACHINES = {"A100": 2.0e12, "H100": 3.35e12}  # bytes of memory a second
LAUNCH = 5e-6  # seconds, without a CUDA graph
PTXAS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"


class Count(TorchDispatchMode):
    """Launches, questions to the device, and bytes read and written."""

    def __init__(self) -> None:
        super().__init__()
        self.launches = self.questions = self.bytes = 0
        self.kernels: list[tuple[Any, dict[str, Any], dict[tuple[int], Any], int]] = []

    def launch(self, given: Any) -> None:
        """Counts one, which reads or writes each of these tensors once."""
        self.launches += 1
        self.bytes += sum(x.nbytes for x in tensors(given))

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out, name = function(*args, **kwargs or {}), function.__name__
        self.questions += "_local_scalar_dense" in name or "nonzero" in name
        if not function.is_view and not name.startswith(FREE):
            self.launch((args, kwargs, out))
        return out

    def run(self, kernel: Any, *args: Any, grid: Any, warmup: bool, num_warps: int = 4) -> None:
        """What Triton calls to launch a kernel, which leaves parts at 0; types and constants are kept, for building."""
        fixed = {place: x for place, x in enumerate(args) if kernel.params[place].is_constexpr}
        given = ("constexpr" if place in fixed else typed(x) for place, x in enumerate(args))
        signature = dict(zip(kernel.arg_names, given, strict=True))
        self.kernels.append((kernel, signature, {(place,): x for place, x in fixed.items()}, num_warps))
        self.launch([x.data.zero_() if x.dtype == torch.int16 else x for x in tensors(args)])


def tensors(tree: Any) -> list[Tensor]:
    """All of them, each once."""
    return list({id(x): x for x in tree_leaves(tree) if isinstance(x, Tensor)}.values())


def run_once(n: int, is_training: bool, **settings: Any) -> Count:
    """A forward pass of one layer, or a step of it, whose gradients come from the rest of a model."""
    is_masked = settings.pop("is_masked", False)
    layer = build_attention("sbm", preset="fitted", d_head=WIDTH, n_heads=HEADS, **settings).train(is_training)
    layer.log_start.fill_(-1.0)
    tokens = [torch.randn(1, HEADS, n, WIDTH, dtype=torch.bfloat16, requires_grad=is_training) for _ in range(3)]
    gradients, counter = [torch.randn_like(tokens[0]), torch.ones(())], Count()
    key_mask = torch.ones(1, n, dtype=torch.bool) if is_masked else None
    patches = {f"sbmt.{place}.has_kernels_for": lambda x: True for place in ("layers.sbm", "layers.functional")}
    patches["sbmt.block_model.crossed.can_run_on"] = lambda device: False
    patches["sbmt.block_model.crossed.in_range"] = lambda name, x, upper: x
    for name, function in patches.items():
        mock.patch(name, function).start()
    mock.patch.object(triton.JITFunction, "run", lambda kernel, *args, **rest: counter.run(kernel, *args, **rest)).start()
    try:
        with torch.set_grad_enabled(is_training), counter:
            found = layer(*tokens, key_mask=key_mask)
            if is_training:
                torch.autograd.backward([found.values, found.auxiliary_loss], gradients)
    finally:
        mock.patch.stopall()
    return counter


def count(n: int, is_training: bool) -> dict[str, float]:
    """What a forward pass, or a step, launches and moves, and the milliseconds that take at least."""
    counter, n_edges = run_once(n, is_training), n * HEADS * (EDGES + EXTRA * is_training)
    gathered = n_edges * WIDTH * (4 + is_training * (4 + 16))  # bfloat16; gradients are added to in float32
    found = {"launches": counter.launches, "kernels": len(counter.kernels), "questions": counter.questions}
    found |= {"bytes": counter.bytes, "gathered": gathered}
    times = {f"ms_{name}": (counter.bytes + gathered) / speed * 1e3 for name, speed in MACHINES.items()}
    return found | times | {"ms_launches": counter.launches * LAUNCH * 1e3}


def typed(given: Any) -> Any:
    """The types of a kernel's arguments, as Triton names them."""
    if isinstance(given, tuple):
        return type(given)(*map(typed, given)) if hasattr(given, "_fields") else tuple(map(typed, given))
    if isinstance(given, Tensor):
        return TYPES[str(given.dtype).removeprefix("torch.")]
    return "fp32" if isinstance(given, float) else "i32"


def build(capability: int, **settings: Any) -> dict[str, dict[str, int]]:
    """Registers of a thread, spilled bytes, and shared memory of a program, of all kernels of a step."""
    found = {}
    for kernel, signature, constants, num_warps in run_once(4096, True, **settings).kernels:
        source = ASTSource(kernel, signature=signature, constexprs=constants)
        built = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": num_warps})
        with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
            Path(file.name).write_text(built.asm["ptx"])
            target = re.search(r"\.target (\w+)", built.asm["ptx"])
            told = subprocess.run(
                [PTXAS, "-v", f"--gpu-name={target[1]}", file.name, "-o", "/dev/null"], capture_output=True, text=True
            ).stderr
        numbers = {"registers": r"Used (\d+) registers", "spilled": r"(\d+) bytes spill stores"}
        found[kernel.__name__.strip("_")] = {name: int(re.search(x, told)[1]) for name, x in numbers.items()} | {
            "shared": built.metadata.shared,
            "bytes": len(built.asm["cubin"]),
        }
    return found


def main() -> None:
    """Counts and builds."""
    ways = {"forward": False, "step": True}
    counts = {way: {str(n): count(n, is_training) for n in LENGTHS} for way, is_training in ways.items()}
    built = {f"{cc}": build(cc) for cc in (80, 90)} | {"90 masked causal": build(90, is_masked=True, causal=True)}
    write("gpu/counted", {"counted": counts, "built": built})


if __name__ == "__main__":
    run(main, "gpu")
