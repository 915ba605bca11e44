"""What a time depends on besides the code: the machine, its GPU if one is measured, and versions."""

import os
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from sbmt.experiments.training.run import manifest
from sbmt.kernels.cutoffs import processor

PACKAGES = ("numpy", "scipy", "numba", "torch-geometric")


def machine_manifest() -> dict[str, Any]:
    """A run's manifest, with the processor, OpenMP's waiting policy and the versions of what else computes."""
    return manifest() | {
        "processor": processor(),
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "not set"),
        **{name: version(name) for name in PACKAGES},
    }


def gpu_manifest(device: torch.device) -> dict[str, Any]:
    """The GPU's name, memory and driver, and the versions of CUDA and Triton; empty if the device is not a GPU."""
    if device.type != "cuda":
        return {}
    about = torch.cuda.get_device_properties(device)
    gpu = {"gpu": about.name, "gpu_memory_gib": round(about.total_memory / 2**30, 1), "driver": _driver()}
    with suppress(PackageNotFoundError):
        gpu["triton"] = version("triton")
    return {"triton": "not installed"} | gpu | {"cuda": torch.version.cuda or "unknown"}


def _driver() -> str:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True, timeout=30).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return "unknown"
