"""What a time depends on besides the code: the machine, its GPU if one is measured, and versions."""

import os
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from sbmt.experiments.training.run import manifest

CPU_INFO = Path("/proc/cpuinfo")
PACKAGES = ("numpy", "scipy", "numba", "torch-geometric")


def machine_manifest() -> dict[str, Any]:
    """A run's manifest, with the processor, OpenMP's waiting policy and the versions of what else computes."""
    return manifest() | {
        "processor": processor(),
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "not set"),
        **{name: version(name) for name in PACKAGES},
    }


def processor() -> str:
    """The processor's model, as far as the system reports it."""
    try:
        lines = CPU_INFO.read_text().splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or "unknown"


def gpu_manifest(device: torch.device) -> dict[str, Any]:
    """The GPU's name, memory and driver, and the versions of CUDA and Triton; empty if the device is not a GPU."""
    if device.type != "cuda":
        return {}
    about = torch.cuda.get_device_properties(device)
    return {
        "gpu": about.name,
        "gpu_memory_gib": round(about.total_memory / 2**30, 1),
        "driver": _driver(),
        "cuda": torch.version.cuda or "unknown",
        "triton": _triton(),
    }


def _driver() -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        return "unknown"
    command = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return answer.splitlines()[0].strip() if answer else "unknown"


def _triton() -> str:
    try:
        return version("triton")
    except PackageNotFoundError:
        return "not installed"
