"""Devices by name."""

import torch

from sbmt.errors import SbmtError, choose

DEVICES = {name: torch.device(name) for name in ("cpu", "cuda")}


def usable_device(name: str) -> torch.device:
    """The device of a name; SbmtError if the name is unknown, or no GPU answers."""
    device = choose("device", name, DEVICES)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SbmtError("a GPU that torch can use for the device cuda", "none", "use cpu, or a build of torch for CUDA")
    return device
