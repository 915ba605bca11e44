"""Masks for which visiting every pair is faster than following the edges: as measured on this machine, or built in."""

import json
import platform
import re
import warnings
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

CPU_INFO = Path("/proc/cpuinfo")


class Cutoff(NamedTuple):
    """Masks of at most ``cells`` cells, of which at least the share ``density`` are edges, are visited pair by pair.

    Attributes:
        cells: Pairs over all examples and heads; 0 always follows the edges.
        density: In [0, 1].
    """

    cells: int
    density: float

    def takes_all_pairs(self, n_edges: int, n_cells: int) -> bool:
        """Whether a mask is visited pair by pair.

        Example:
            >>> Cutoff(100, 0.5).takes_all_pairs(40, 64), Cutoff(100, 0.5).takes_all_pairs(20, 64)
            (True, False)
        """
        return n_cells <= self.cells and n_edges >= self.density * n_cells


BUILT_IN = {
    "attention": Cutoff(0, 1.0),
    "edge_dot": Cutoff(1 << 16, 0.0),
    "edge_gate": Cutoff(1 << 15, 0.0),
}
"""By what is computed, for the kernels of the CPU: what suits the machine of the published benchmarks best."""


@cache
def cutoffs() -> Mapping[str, Cutoff]:
    """Those that ``sbmt cutoffs --measure`` kept for this machine, or the built-in ones.

    They decide about speed alone, but sums of floating-point numbers depend on their order: with other cut-offs, last
    digits may differ.
    """
    path = cutoffs_file()
    if path is None or not path.exists():
        return BUILT_IN
    try:
        kept = json.loads(path.read_text("utf-8"))
        found = {name: Cutoff(int(cells), float(density)) for name, (cells, density) in kept["cutoffs"].items()}
        if found.keys() != BUILT_IN.keys() or not all(c.cells >= 0 and 0 <= c.density <= 1 for c in found.values()):
            raise ValueError("other numbers than cut-offs")
        return found if kept["machine"] == this_machine() else BUILT_IN
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        do = "sbmt cutoffs --measure writes it anew"
        warnings.warn(f"{path} does not hold cut-offs ({error!r}): taking the built-in ones; {do}", stacklevel=2)
        return BUILT_IN


def cutoffs_file() -> Path | None:
    """Where measured cut-offs are kept, in the user's cache; None without platformdirs, by which to find that."""
    with suppress(ImportError):
        from platformdirs import user_cache_path

        return user_cache_path("sbmt") / "cutoffs.json"
    return None


def this_machine() -> str:
    """What the speed of a kernel depends on: the processor, its threads, and torch."""
    return f"{processor()}, {torch.get_num_threads()} threads, torch {torch.__version__}"


def processor() -> str:
    """The processor's name, family and model, since names alone say little on virtual machines, and torch's vectors.

    For example "AMD EPYC (family 26, model 2; AVX512)".
    """
    text = CPU_INFO.read_text() if CPU_INFO.exists() else ""
    found = [re.search(rf"^{field}\s*: (.*)", text, re.MULTILINE) for field in ("model name", "cpu family", "model")]
    name, family, model = (None if one is None else one[1] for one in found)
    which = f"family {family}, model {model}; " if family and model else ""
    return f"{name or platform.processor() or 'unknown'} ({which}{torch.backends.cpu.get_cpu_capability()})"
