"""Counts the work of a fitted layer on a GPU, without one; writes ``results/gpu/counted.json``.

``python results/measure/gpu.py`` runs a layer of the preset *fitted* (c = 16, 8 heads of width 64, bfloat16, one
sequence), with every Triton kernel replaced by a stub that records its launch. This works because no shape depends on
the drawn edges. The script counts launches, device synchronisations, and the bytes of the tensors that operations read
or write, each once. It counts launches for other settings, too. It also builds every kernel for compute capabilities
8.0 and 9.0, and in causal order with padding, to report registers and spills.
"""

import re
import subprocess
from typing import Any
from unittest import mock

import torch
import triton
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from triton.backends.compiler import GPUTarget

from results.measure.common import run, write
from sbmt import build_attention

LENGTHS, HEADS, WIDTH, EDGES, EXTRA = (4096, 16384, 65536), 8, 64, 17, 8  # edges per query: c and itself; extra keys
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "padding": {"has_masks": True},
    "causal": {"causal": True},
    "causal with padding": {"causal": True, "has_masks": True},
    "window": {"window": 8},
    "without self-loops": {"self_loops": False},
    "bfloat16 parameters": {"dtype": torch.bfloat16},
    "all of these": {"causal": True, "has_masks": True, "window": 8, "dtype": torch.bfloat16},
}
PAPER = "recommended"  # the preset with the paper's masks, whose kernels "faithful" shares
TYPES = {torch.float64: "*fp64", torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.bool: "*i1"}
TYPES |= {torch.int16: "*i16", torch.int32: "*i32", torch.int64: "*i64"}
FREE = ("empty", "new_empty", "detach", "_unsafe_view", "alias", "lift", "promote_types", "scalar_tensor", "zero_")
MACHINES, LAUNCH = {"A100": 2.0e12, "H100": 3.35e12}, 5e-6  # bytes of memory per second; seconds without a CUDA graph
TOLD = {"registers": r"Used (\d+) registers", "spilled": r"(\d+) bytes spill stores"}


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
    for place, answer in (places | {"block_model.crossed.can_run_on": False}).items():
        mock.patch(f"sbmt.{place}", return_value=answer).start()
    mock.patch("sbmt.block_model.crossed.in_range", lambda name, x, upper: x).start()
    mock.patch.object(type(triton.jit(typed)), "run", lambda *args, **options: counter.run(*args, **options)).start()
    try:
        with torch.set_grad_enabled(is_training), counter:
            found = layer(*tokens, query_mask=masks[0], key_mask=masks[1])
            counter.forward = counter.launches
            if is_training:
                loss = found.auxiliary_loss if preset == "fitted" else found.density.mean()
                torch.autograd.backward([found.values, loss], gradients)
    finally:
        mock.patch.stopall()
    return counter


def count_case(**settings: Any) -> dict[str, int]:
    """Counts the kernel launches of a step's forward and backward pass, and its device synchronisations."""
    counter = run_once(512, True, **settings)  # with enough tokens to draw by edges, too
    passes = {"forward": counter.forward, "backward": counter.launches - counter.forward}
    return passes | {"questions": counter.questions}


def count(n: int, is_training: bool) -> dict[str, float]:
    """Counts the launches and bytes of a forward pass or a step, and bounds their time in milliseconds from below."""
    counter, n_edges = run_once(n, is_training), n * HEADS * (EDGES + EXTRA * is_training)
    gathered = n_edges * WIDTH * (4 + is_training * (4 + 16))  # bfloat16; gradients are accumulated in float32
    times = {f"ms_{name}": (counter.bytes + gathered) / speed * 1e3 for name, speed in MACHINES.items()}
    times["ms_launches"] = counter.launches * LAUNCH * 1e3
    return (
        {name: getattr(counter, name) for name in ("launches", "questions", "bytes")} | {"gathered": gathered} | times
    )


def typed(given: Any) -> Any:
    """Returns the types of a kernel's arguments, as Triton names them."""
    if isinstance(given, tuple):
        return type(given)(*map(typed, given))
    if isinstance(given, torch.dtype | torch.Tensor):
        return TYPES[given.dtype if isinstance(given, torch.Tensor) else given]
    return "fp32" if isinstance(given, float) else "i32"


def built_for(capability: int, kernel: Any, args: tuple[Any, ...], options: dict[str, int]) -> Any:
    """Builds a kernel for a compute capability and for the types of its arguments."""
    constants = {(place,): x for place, x in enumerate(args) if kernel.params[place].is_constexpr}
    types = ("constexpr" if (place,) in constants else typed(x) for place, x in enumerate(args))
    source = triton.compiler.ASTSource(kernel, dict(zip(kernel.arg_names, types, strict=True)), constants)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


def build(capability: int, **settings: Any) -> dict[str, dict[str, int]]:
    """Returns the registers per thread, spilled bytes, and shared memory per program of all kernels of a step."""
    found: dict[str, dict[str, int]] = {}
    for kernel, args, options in run_once(4096, True, **settings).kernels:
        built = built_for(capability, kernel, args, options)
        [name] = re.findall(r"\.target (\w+)", built.asm["ptx"])
        order = [triton.knobs.nvidia.ptxas.path, "-v", f"--gpu-name={name}", "/dev/stdin", "-o", "/dev/null"]
        told = subprocess.run(order, input=built.asm["ptx"], capture_output=True, text=True, check=True).stderr
        one = {what: int(re.findall(pattern, told)[0]) for what, pattern in TOLD.items()}
        earlier = found.setdefault(kernel.__name__.strip("_"), one)  # the maxima if launched twice
        earlier |= {what: max(one[what], earlier[what]) for what in one} | {"shared": built.metadata.shared}
    return found


def main() -> None:
    """Counts the work, builds the kernels, and writes the result file."""
    counts = {way: {str(n): count(n, way == "step") for n in LENGTHS} for way in ("forward", "step")}
    cases = {name: count_case(**settings) for name, settings in CASES.items()}
    last = "causal with padding"
    built = {"80": build(80), "90": build(90), f"90, {last}": build(90, **CASES[last])}
    built |= {f"{cc}, {PAPER}": build(cc, preset=PAPER) for cc in (80, 90)}
    write("gpu/counted", {"counted": counts, "cases": cases, PAPER: count_case(preset=PAPER), "built": built})


if __name__ == "__main__":
    run(main, "gpu")
