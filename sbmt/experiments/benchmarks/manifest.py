"""What a time depends on besides the code."""

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sbmt.experiments.training.runs import manifest

CPU_INFO = Path("/proc/cpuinfo")
PACKAGES = ("numpy", "scipy", "numba", "torch-geometric")


def machine_manifest() -> dict[str, Any]:
    """A run's manifest, and the processor, OpenMP's waiting policy and the versions of what else computes."""
    return manifest() | {
        "processor": processor(),
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "not set"),
        **{name: version(name) for name in PACKAGES},
    }


def processor() -> str:
    """The processor's model, as far as the system tells."""
    try:
        lines = CPU_INFO.read_text().splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or "unknown"
