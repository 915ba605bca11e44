"""Builds kernels for GPUs that need not be present, and reads off the registers and memory that they need."""

import re
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

TYPES = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.bool: "i1",
}
OPTIONS = ("num_warps", "num_stages")


@dataclass(frozen=True)
class Launch:
    """A kernel with the arguments of one call."""

    kernel: Any  # what Triton made of the function
    arguments: dict[str, Any]  # by name
    options: dict[str, int]  # numbers of warps and stages

    @property
    def name(self) -> str:
        """Name of the function."""
        return str(self.kernel.fn.__name__)


@dataclass(frozen=True)
class Build:
    """The resources that a kernel needs."""

    registers: int  # of a thread
    spilled: int  # bytes of a thread's registers that are kept in memory instead
    shared: int  # bytes of shared memory of a program


@contextmanager
def recorded() -> Iterator[list[Launch]]:
    """Collects launches instead of running them."""
    from triton.runtime.jit import JITFunction

    launches: list[Launch] = []

    def record(self: Any, *args: Any, grid: Any, warmup: Any, **kwargs: Any) -> None:
        options = {name: kwargs.pop(name) for name in OPTIONS if name in kwargs}
        launches.append(Launch(self, dict(zip(self.arg_names, args, strict=False)) | kwargs, options))

    run, JITFunction.run = JITFunction.run, record
    try:
        yield launches
    finally:
        JITFunction.run = run


def build(launch: Launch, capability: int) -> Build:
    """Builds a kernel for NVIDIA GPUs of a compute capability (90 stands for 9.0), as Triton would for the launch.

    Needs Triton but no GPU, and takes seconds.
    """
    import triton

    compiled = _compile(launch, capability)
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(compiled.asm["cubin"])
        command = [tool, "--dump-resource-usage", path]
        usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {name: int(number) for name, number in re.findall(r"(REG|STACK):(\d+)", usage)}
    return Build(found["REG"], found["STACK"], compiled.metadata.shared)


def _compile(launch: Launch, capability: int) -> Any:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    constants = {p.name for p in launch.kernel.params if _is_constant(p, launch.arguments[p.name])}
    signature = {name: "constexpr" if name in constants else _type(value) for name, value in launch.arguments.items()}
    constexprs = {name: launch.arguments[name] for name in constants}
    aligned = {
        (i,): [["tt.divisibility", 16]]
        for i, parameter in enumerate(launch.kernel.params)
        if parameter.name not in constants and _is_aligned(parameter, launch.arguments[parameter.name])
    }
    source = ASTSource(fn=launch.kernel, signature=signature, constexprs=constexprs, attrs=aligned)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=launch.options)


def _is_constant(parameter: Any, value: Any) -> bool:
    """Triton also builds None and the number 1 into the kernel."""
    is_one = isinstance(value, int) and value == 1 and not parameter.do_not_specialize
    return parameter.is_constexpr or value is None or is_one


def _is_aligned(parameter: Any, value: Any) -> bool:
    """Whether Triton builds the kernel for a multiple of 16; PyTorch's memory is aligned so, integers may be."""
    if isinstance(value, Tensor):
        return True
    return isinstance(value, int) and value % 16 == 0 and not parameter.do_not_specialize


def _type(value: Any) -> str:
    if isinstance(value, Tensor):
        return "*" + TYPES[value.dtype]
    if isinstance(value, bool):
        return "i1"
    if isinstance(value, int):
        return "i32" if -(2**31) <= value < 2**31 else "i64"
    return "fp32"
