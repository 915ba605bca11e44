"""What a time depends on besides the code: the machine, its GPU if one is measured, and versions."""

import os
import platform
import re
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from sbmt.experiments.training.run import manifest

PACKAGES = ("numpy", "scipy", "torch-geometric")
CPU_INFO = Path("/proc/cpuinfo")


def machine_manifest() -> dict[str, Any]:
    """A run's manifest, with the processor, OpenMP's waiting policy and the versions of what else computes."""
    return manifest() | {
        "processor": processor(),
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "not set"),
        **{name: version(name) for name in PACKAGES},
    }


def processor() -> str:
    """The processor's name, family and model, since names alone say little on virtual machines, and torch's vectors.

    For example "AMD EPYC (family 26, model 2; AVX512)".
    """
    text = CPU_INFO.read_text() if CPU_INFO.exists() else ""
    found = [re.search(rf"^{field}\s*: (.*)", text, re.MULTILINE) for field in ("model name", "cpu family", "model")]
    name, family, model = (None if one is None else one[1] for one in found)
    which = f"family {family}, model {model}; " if family and model else ""
    return f"{name or platform.processor() or 'unknown'} ({which}{torch.backends.cpu.get_cpu_capability()})"


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
