"""What a time depends on besides the code: the machine, its GPU if one is measured, and versions."""

import os
import platform
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from sbmt.experiments.training.run import manifest


def machine_manifest() -> dict[str, Any]:
    """A run's manifest, with the processor, OpenMP's waiting policy and the versions of what else computes."""
    versions = {name: version(name) for name in ("numpy", "scipy", "torch-geometric")}
    policy = os.environ.get("OMP_WAIT_POLICY", "not set")
    return manifest() | {"processor": processor(), "OMP_WAIT_POLICY": policy, **versions}


def processor() -> str:
    """The processor's name, family and model, since names alone say little on virtual machines, and torch's vectors.

    For example "AMD EPYC (family 26, model 2; AVX512)".
    """
    path = Path("/proc/cpuinfo")
    text = path.read_text() if path.exists() else ""
    found = dict(re.findall(r"^(model name|cpu family|model)\s*: (.*)", text, re.MULTILINE))
    which = "family {cpu family}, model {model}; ".format(**found) if len(found) == 3 else ""
    name = found.get("model name") or platform.processor() or "unknown"
    return f"{name} ({which}{torch.backends.cpu.get_cpu_capability()})"


def gpu_manifest(device: torch.device) -> dict[str, Any]:
    """The GPU's name and memory, and the version of CUDA; empty if the device is not a GPU."""
    if device.type != "cuda":
        return {}
    about = torch.cuda.get_device_properties(device)
    memory = round(about.total_memory / 2**30, 1)
    return {"gpu": about.name, "gpu_memory_gib": memory, "cuda": torch.version.cuda or "unknown"}
