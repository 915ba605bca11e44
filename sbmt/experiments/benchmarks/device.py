"""The device that is measured: what it is called, whether it still answers, and how much memory a call takes of it."""

import gc
import shutil
import subprocess
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

CUDA = torch.device("cuda")
MEBIBYTE, GIBIBYTE = 2**20, 2**30


def room(device: torch.device) -> int | None:
    """Bytes of memory that the GPU has; None where the device is none."""
    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None


def mebibytes_added(call: Callable[[], object], device: torch.device) -> float | None:
    """Calls, and tells what that took of the GPU's memory at its peak beyond what was held before."""
    if device.type != "cuda":
        call()
        return None
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    call()
    torch.cuda.synchronize(device)
    return round((torch.cuda.max_memory_allocated(device) - before) / MEBIBYTE, 1)


def give_back(device: torch.device) -> None:
    """Hands back what failed calls and former cases have left of the GPU's memory."""
    gc.collect(1)  # what they left is young; a full collection takes longer than many a race
    if device.type == "cuda":
        torch.cuda.empty_cache()


def is_alive(device: torch.device) -> bool:
    """Whether the device still computes: after an illegal access to memory it does not, in this process."""
    try:
        return torch.ones(2, device=device).sum().item() == 2
    except RuntimeError:
        return False


def gpu_manifest(device: torch.device) -> dict[str, Any]:
    """What a time on a GPU depends on besides the code: its name, memory and driver, CUDA's and Triton's versions."""
    if device.type != "cuda":
        return {}
    about = torch.cuda.get_device_properties(device)
    return {
        "gpu": about.name,
        "gpu_memory_gib": round(about.total_memory / GIBIBYTE, 1),
        "driver": _driver(),
        "cuda": torch.version.cuda or "unknown",
        "triton": _version("triton"),
    }


def _driver() -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        return "unknown"
    ask = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        told = subprocess.run(ask, capture_output=True, text=True, check=False, timeout=30).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return told.splitlines()[0].strip() if told else "unknown"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
