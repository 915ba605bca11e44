"""Describes the machine on which something is measured, and measures the memory that a call needs."""

import json
import os
import platform
import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

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
    if device is not None and device.type == "cuda":
        about |= {"gpu": torch.cuda.get_device_name(device), "cuda": torch.version.cuda or "unknown"}
    return about


def peak_of(call: Callable[[], object]) -> float:
    """Returns the peak memory in MiB of the tensors on the CPU that a call allocates."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # hides messages of the profiler
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
        call()
    with TemporaryDirectory() as folder:
        trace.export_chrome_trace(f"{folder}/trace.json")
        events = json.loads(Path(folder, "trace.json").read_text())["traceEvents"]
    changes = [event["args"] for event in events if event.get("name") == "[memory]"]
    totals = [change["Total Allocated"] for change in changes]
    return (max(totals) - totals[0] + changes[0]["Bytes"]) / 2**20 if totals else 0.0
