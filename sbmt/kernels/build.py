"""Compiles the loops in ``sbmt/kernels/loops`` with the machine's C++ compiler when they are first called."""

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from sbmt.counter_rng import MAX_HEADS, Purpose
from sbmt.errors import SbmtError

SOURCES = Path(__file__).parent / "loops"
C_TYPES = {
    torch.float32: "float",
    torch.float64: "double",
    torch.int64: "int64_t",
    torch.int16: "int16_t",
    torch.bool: "bool",
}
_FLAGS = ["-std=c++17", "-O3", "-fPIC", "-shared", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math"]
_FLAGS += ["-ffp-contract=off"]  # so that equal numbers give equal edges on any processor
_TORCH = Path(torch.__file__).parent  # torch's stable C interface provides the threads for the loops
_FLAGS += ["-isystem", str(_TORCH / "include")]
_FLAGS += [f"-D{purpose.name}={purpose * MAX_HEADS}" for purpose in Purpose]


@cache
def compiler() -> tuple[str, ...] | None:
    """Returns the command of the C++ compiler: the environment variable ``CXX``, or the first of c++, g++ and clang++.

    Returns None on Windows, without a compiler, if ``CXX`` is empty, or if cffi, which calls the loops, is missing.
    """
    given = os.environ.get("CXX")
    names = ["c++", "g++", "clang++"] if given is None else [given]
    for name in names if os.name == "posix" else []:
        words = shlex.split(name)
        if words and shutil.which(words[0]) and find_spec("cffi"):
            return tuple(words)
    return None


@cache
def library(dtype: torch.dtype) -> tuple[Any, Any]:
    """Returns cffi's interface and the loops for float32 or float64, which are compiled if necessary.

    Compiled loops are stored in the user's cache directory (``XDG_CACHE_HOME`` or ``~/.cache``), under a hash of their
    sources, flags and compiler. If the directory is not writable, each process compiles them anew.

    Raises:
        SbmtError: If the compiler fails.

    Cost: a few seconds per dtype, once on each machine.
    """
    from cffi import FFI

    real = C_TYPES[dtype]
    ffi = FFI()
    ffi.cdef(f"typedef {real} real;\n" + (SOURCES / "loops.h").read_text("utf-8"))
    start = [*(compiler() or ()), "-march=native"]
    about = [*"-dM -E -x c++".split(), os.devnull]  # prints macros that identify the compiler and the processor
    try:
        told = _run([*start, *about])
    except SbmtError:  # some compilers do not support -march=native
        told = _run([*(start := start[:-1]), *about])
    if b"__AVX512F__" in told and b"__tune_" not in told:  # an Intel processor that the compiler does not know
        start += ["-mtune=skylake-avx512", "-mprefer-vector-width=512"]  # or it would not use gather instructions
    command = [*start, *_FLAGS, f"-DSBMT_REAL={real}"]
    hashed = hashlib.sha256("\n".join([platform.platform(), *command]).encode() + told)
    for source in sorted(SOURCES.iterdir()):
        hashed.update(source.read_bytes())
    name = f"loops-{hashed.hexdigest()[:20]}.so"
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sbmt"
        if not (folder / name).exists():  # otherwise the folder need not be writable
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder) as beside:
                os.replace(_compile(command, Path(beside)), folder / name)  # atomic
        return ffi, ffi.dlopen(str(folder / name))
    except (OSError, RuntimeError):  # there is no home directory, or it is not writable
        with tempfile.TemporaryDirectory() as other:
            return ffi, ffi.dlopen(str(_compile(command, Path(other))))


def _compile(command: list[str], folder: Path) -> Path:
    made = folder / "loops.so"
    sources = (str(source) for source in sorted(SOURCES.glob("*.cpp")))
    _run([*command, *sources, "-o", str(made), "-L", str(_TORCH / "lib"), "-ltorch_cpu"])
    return made


def _run(command: list[str]) -> bytes:
    done = subprocess.run(command, capture_output=True)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit status {done.returncode}"]
        do = "set the environment variable CXX to another compiler, or to an empty string to run without one"
        raise SbmtError(f"a working C++ compiler ({shlex.join(command[:3])} …)", "; ".join(said[:3]), do)
    return done.stdout
