"""How fast costs grow that are measured rather than counted: torch's count of products, and peak memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from results.paper_costs.claims import TABLE_6, Claim
from results.paper_costs.formula import Formula
from results.paper_costs.growth import RANKS, log_log_slope
from sbmt.experiments.costs import Case, build_case, peak_memory, sample_tokens
from sbmt.layers import SBMAttention

CHUNK, EDGES_PER_TOKEN = 16, 64


@dataclass(frozen=True)
class Sweep:
    """One size that grows while the others stay.

    Attributes:
        method: A name in :data:`sbmt.experiments.costs.METHODS`; its model has one layer with one head.
        symbol: ``"n"``, ``"k"``, ``"d"`` or ``"m"``.
        values: The sizes; for m, the number of edges.
        base: The other sizes. Without m, masks have :data:`EDGES_PER_TOKEN`, so that m grows with n.
    """

    method: str
    symbol: str
    values: tuple[int, ...]
    base: Mapping[str, int]

    def cases(self) -> list[Case]:
        """One per size."""
        return [self._case({**self.base, self.symbol: value}) for value in self.values]

    def _case(self, sizes: Mapping[str, int]) -> Case:
        n, k = sizes["n"], sizes["k"]
        settings: dict[str, Any] = {"n_layers": 1, "n_heads": 1, "d_model": sizes["d"], "d_hidden": 8, "n_chunk": CHUNK}
        density = sizes.get("m", EDGES_PER_TOKEN * n) / n**2
        return Case(self.method, n, density, settings=settings | {"n_clusters": k, **dict.fromkeys(RANKS, k)})


def _sweeps(base: Mapping[str, int], sizes: Mapping[str, Mapping[str, tuple[int, ...]]]) -> tuple[Sweep, ...]:
    return tuple(Sweep(name, symbol, values, base) for name, mine in sizes.items() for symbol, values in mine.items())


_N, _LONG, _D = (256, 512, 1024), (1024, 2048, 4096), (64, 128, 256)
PRODUCTS = (
    *_sweeps({"n": 256, "k": 8, "d": 8}, {
        "full": {"n": _N, "d": _D},
        "linear": {"n": _N, "d": _D},
        "reformer": {"n": _LONG, "d": _D},
        "performer": {"n": _N, "k": (32, 64, 128), "d": _D},
        "linformer": {"n": _N, "k": (32, 64, 128), "d": _D},
        "nystromformer": {"n": _LONG, "d": _D},
        "sbm-algorithm-1": {"n": _N, "d": (256, 512, 1024)},
        "sbm": {"n": _N},
    }),
    *_sweeps({"n": 256, "k": 8, "d": 2}, {"nystromformer": {"k": (64, 128, 256)}}),
    *_sweeps({"n": 16, "k": 8, "d": 8, "m": 64}, {"sbm-algorithm-1": {"k": (512, 1024, 2048)}}),
)  # fmt: skip
"""Sizes at which one term dominates, cheap enough for a test."""

_WIDE, _WIDEST, _EDGES = (128, 256, 512, 1024), (1024, 2048, 4096), (2**20, 2**21, 2**22)
MEMORY = (
    *_sweeps({"n": 4096, "k": 128, "d": 32}, {
        "full": {"n": (1024, 2048, 4096)},
        "full-fused": {"n": (8192, 16384, 32768)},
        "linear": {"n": (8192, 16384, 32768)},
        "reformer": {"n": (4096, 8192, 16384)},
        "performer": {"n": (4096, 8192, 16384), "k": _WIDE},
        "linformer": {"n": (8192, 16384, 32768), "k": _WIDE},
        "nystromformer": {"n": (4096, 8192, 16384), "k": _WIDE},
        "sbm-algorithm-1": {"n": (4096, 8192, 16384), "k": _WIDE},
        "sbm": {"n": (4096, 8192, 16384), "k": _WIDE},
    }),
    *_sweeps({"n": 4096, "k": 8, "d": 8}, {"sbm-algorithm-1": {"m": _EDGES}, "sbm": {"m": _EDGES}}),
    *_sweeps({"n": 64, "k": 8, "d": 8, "m": 64}, {"sbm-algorithm-1": {"k": _WIDEST}, "sbm": {"k": _WIDEST}}),
)  # fmt: skip
"""Sizes at which a forward pass takes some tens of MiB or more."""


def claim_of(method: str) -> Claim:
    """The row of Table 6 that describes a method."""
    return TABLE_6[{"full-fused": "full", "sbm": "sbm-algorithm-1"}.get(method, method)]


def attention_flops(case: Case) -> int:
    """Torch's count of the products inside the attentions of one forward pass.

    It does not see compiled kernels, which take all masks here however dense, nor on the CPU the products inside
    torch's own fused kernel, so that one is switched off.
    """
    model, tokens = build_case(case), sample_tokens(case)
    for layer in (module for module in model.modules() if isinstance(module, SBMAttention)):
        layer.backend = "cpu"
    with torch.inference_mode(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(tokens)
    ours = [counts for name, counts in counter.get_flop_counts().items() if name.endswith("attention.attention")]
    return sum(sum(counts.values()) for counts in ours)


def measure_products(sweep: Sweep) -> dict[str, Any]:
    """How torch's count of an attention's products grows."""
    return _summary(sweep, claim_of(sweep.method).time, [attention_flops(case) for case in sweep.cases()])


def measure_memory(sweep: Sweep) -> dict[str, Any]:
    """How the peak memory of a forward pass grows; ``missing`` with the reason if it cannot be measured."""
    found = peak_memory(sweep.cases())
    missing = [one["missing"] for one in found if "missing" in one]
    if missing:
        return _about(sweep) | {"missing": missing[0]}
    return _summary(sweep, claim_of(sweep.method).memory, [one["forward"] for one in found])


def _summary(sweep: Sweep, claimed: Formula, costs: Sequence[float | int]) -> dict[str, Any]:
    """Slopes of the claim, with all its constants set to 1, and of the costs found, over the same sizes."""
    promised = []
    for value in sweep.values:
        sizes = {"r": 2, "c": CHUNK, **sweep.base, sweep.symbol: value}
        promised.append(claimed.at({"m": EDGES_PER_TOKEN * sizes["n"], **sizes}))
    slopes = {"claimed": promised, "slope": costs}
    found = {name: round(log_log_slope(sweep.values, one), 3) for name, one in slopes.items()}
    return _about(sweep) | found | {"costs": list(costs)}


def _about(sweep: Sweep) -> dict[str, Any]:
    return {"method": sweep.method, "symbol": sweep.symbol, "values": list(sweep.values), "base": dict(sweep.base)}
