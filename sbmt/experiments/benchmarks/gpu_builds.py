"""Builds the kernels for GPUs that need not be there, and counts what the assembler makes of them."""

import re
import subprocess
import tempfile
import warnings
from collections import Counter
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
    torch.bool: "i1",
}
OPTIONS = ("num_warps", "num_stages")
LINE = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?);", re.MULTILINE)  # an address and an instruction
JUMP = re.compile(r"\bBRA\b.*0x([0-9a-f]+)")
PRODUCT = re.compile(r"(?P<groups>HGMMA\.(\d+)x(\d+)x(\d+)\.)|(?P<warps>HMMA\.(\d\d)(\d)(\d+)\.)")


@dataclass(frozen=True)
class Launch:
    """A kernel with the arguments of one call.

    Attributes:
        kernel: What Triton made of the function.
        arguments: By name.
        options: Warps and stages.
    """

    kernel: Any
    arguments: dict[str, Any]
    options: dict[str, int]

    @property
    def name(self) -> str:
        """Of the function."""
        return str(self.kernel.fn.__name__)


@dataclass(frozen=True)
class Build:
    """What the assembler says of a kernel.

    Attributes:
        registers: Of a thread.
        spilled: Bytes of a thread's registers that are kept in memory.
        shared: Bytes of shared memory of a program.
        loop: How often each instruction stands in the longest loop.
    """

    registers: int
    spilled: int
    shared: int
    loop: Counter[str]

    def products(self) -> int:
        """Additions and multiplications of the loop's matrix products, per program of four warps or per warp."""
        total = 0
        for instruction, times in self.loop.items():
            if found := PRODUCT.match(instruction):
                sizes = [int(size) for size in found.groups() if size and size.isdigit()]
                total += 2 * sizes[0] * sizes[1] * sizes[2] * times
        return total

    def count(self, start: str) -> int:
        """How many of the loop's instructions begin so."""
        return sum(times for instruction, times in self.loop.items() if instruction.startswith(start))


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
    """Builds a kernel for NVIDIA GPUs of a compute capability, 90 for 9.0, as Triton would for the call.

    Takes Triton, no GPU, and seconds.
    """
    compiled = _compile(launch, capability)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(compiled.asm["cubin"])
        usage, code = _dump("--dump-resource-usage", path), _dump("--dump-sass", path)
    found = {name: int(number) for name, number in re.findall(r"(REG|STACK):(\d+)", usage)}
    return Build(found["REG"], found["STACK"], compiled.metadata.shared, longest_loop(code))


def longest_loop(code: str) -> Counter[str]:
    """The instructions between a jump back and where it leads, for the widest such jump; predicates left out."""
    lines = [(int(address, 16), text) for address, text in LINE.findall(code)]
    jumps = [(at - int(to[1], 16), int(to[1], 16), at) for at, text in lines if (to := JUMP.search(text))]
    span, first, last = max(jumps, default=(0, 0, 0))
    inside = [text for at, text in lines if first <= at <= last] if span > 0 else []
    return Counter(re.sub(r"^@!?U?P\w+\s+", "", text).split()[0] for text in inside)


def _dump(what: str, path: Path) -> str:
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    return subprocess.run([tool, what, path], capture_output=True, text=True, check=True).stdout


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
    """Triton also builds what is None, or the number 1, into the kernel."""
    is_one = isinstance(value, int) and value == 1 and not parameter.do_not_specialize
    return parameter.is_constexpr or value is None or is_one


def _is_aligned(parameter: Any, value: Any) -> bool:
    """Whether Triton builds the kernel for a multiple of 16: PyTorch's memory is, whole numbers may be."""
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
