"""Builds Triton kernels for GPUs that need not exist, and reads the registers and spilled bytes that they need."""

import re
import subprocess
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget

from results.measure.launches import run_once

TYPES = {torch.float64: "*fp64", torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.bool: "*i1"}
TYPES |= {torch.int16: "*i16", torch.int32: "*i32", torch.int64: "*i64"}
TOLD = {"registers": r"Used (\d+) registers", "spilled": r"(\d+) bytes spill stores"}


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
