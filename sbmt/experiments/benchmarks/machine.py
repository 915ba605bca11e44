"""The machine on which something is measured: its description, and the memory that a call takes."""

import os
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from sbmt.experiments.manifest import manifest


def machine_manifest(device: torch.device | None = None) -> dict[str, Any]:
    """Returns the manifest with the processor, such as "AMD EPYC (family 26, model 2; AVX512)", and with any GPU.

    Family and model are included because virtual machines often report only a generic name.
    """
    path = Path("/proc/cpuinfo")
    text = path.read_text() if path.exists() else ""
    found = dict(re.findall(r"^(model name|cpu family|model)\s*: (.*)", text, re.MULTILINE))
    which = "family {cpu family}, model {model}; ".format(**found) if len(found) == 3 else ""
    name = found.get("model name") or platform.processor() or "unknown"
    about = manifest() | {"processor": f"{name} ({which}{torch.backends.cpu.get_cpu_capability()})"}
    about["OMP_WAIT_POLICY"] = os.environ.get("OMP_WAIT_POLICY", "not set")
    if device is not None and device.type == "cuda":
        about |= {"gpu": torch.cuda.get_device_name(device), "cuda": torch.version.cuda or "unknown"}
    return about


def peak_of(call: Callable[[], object]) -> float:
    """Returns the increase in MiB of this process's peak memory during a call. Works only on Linux."""
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak to the current use
    before = _peak()
    call()
    return _peak() - before


def _peak() -> float:
    [kibibytes] = re.findall(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
    return int(kibibytes) / 1024
