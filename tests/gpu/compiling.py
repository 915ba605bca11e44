"""Compiles launches for GPUs that need not be there, and reads what the assembler says of them."""

import re
import subprocess
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

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


@dataclass(frozen=True)
class Launch:
    """A kernel with the arguments of one call."""

    kernel: object
    arguments: dict
    options: dict

    @property
    def name(self):
        return self.kernel.fn.__name__


@contextmanager
def recorded():
    """Collects launches instead of running them."""
    from triton.runtime.jit import JITFunction

    launches = []

    def record(self, *args, grid, warmup, **kwargs):
        options = {name: kwargs.pop(name) for name in OPTIONS if name in kwargs}
        launches.append(Launch(self, dict(zip(self.arg_names, args, strict=False)) | kwargs, options))

    run, JITFunction.run = JITFunction.run, record
    try:
        yield launches
    finally:
        JITFunction.run = run


def compile_for(launch, capability):
    """The kernel for an NVIDIA GPU of this compute capability, as Triton would build it for the call."""
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


def resources(compiled, folder: Path):
    """Registers of a thread and bytes of stack (spilled registers) by the assembler's account; shared memory."""
    import triton

    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    path = folder / "kernel.cubin"
    path.write_bytes(compiled.asm["cubin"])
    said = subprocess.run([tools / "cuobjdump", "--dump-resource-usage", path], capture_output=True, text=True)
    found = {name: int(number) for name, number in re.findall(r"(REG|STACK|LOCAL):(\d+)", said.stdout)}
    return found | {"SHARED": compiled.metadata.shared}


def _is_constant(parameter, value):
    """Triton also builds what is None, or the number 1, into the kernel."""
    is_one = isinstance(value, int) and value == 1 and not parameter.do_not_specialize
    return parameter.is_constexpr or value is None or is_one


def _is_aligned(parameter, value):
    """Whether Triton builds the kernel for a multiple of 16: PyTorch's memory is, whole numbers may be."""
    if isinstance(value, torch.Tensor):
        return True
    return isinstance(value, int) and value % 16 == 0 and not parameter.do_not_specialize


def _type(value):
    if isinstance(value, torch.Tensor):
        return "*" + TYPES[value.dtype]
    if isinstance(value, bool):
        return "i1"
    if isinstance(value, int):
        return "i32" if -(2**31) <= value < 2**31 else "i64"
    return "fp32"
