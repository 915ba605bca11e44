"""Suites ``attention``, ``fitted`` and ``gpu``: one layer, forward and as a training step, against full attention."""

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sbmt.attention import edge_attention
from sbmt.block_model.model import edge_dot, straight_through_gate
from sbmt.command import is_out_of_memory
from sbmt.experiments.benchmarks.cases import MADE_UP, Case, Setting, build, fitted_setting
from sbmt.experiments.benchmarks.contestants import (
    CONTESTANTS,
    FITTED_CONTESTANTS,
    OURS,
    REFERENCE,
    Contestant,
    entry,
)
from sbmt.experiments.benchmarks.timing import Entry, Pace, Summary, race
from sbmt.experiments.progress import Track, untracked
from sbmt.samplers import sample_edges

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
DEGREE = 0.01 * 4096  # keys per query, the same for every n of a sweep
EVERY_PAIR = 0.9999  # stands for 100 %: the sigmoid of a membership is never quite 1
WHOLE = "whole step"


@dataclass(frozen=True)
class Grid:
    """What to measure.

    Attributes:
        sweeps: Settings by sweep, the most telling ones first; a setting that sweeps share is measured once.
        pace: Pace of each race.
        contestants: Who takes part.
        device: Where to measure.
        dtype: Type of query, key and value; the layer stays float32.
    """

    sweeps: Mapping[str, Sequence[Setting]]
    pace: Pace
    contestants: Mapping[str, Contestant]
    device: torch.device = CPU
    dtype: torch.dtype = torch.float32

    def quick(self) -> "Grid":
        """Up to 4,096 tokens, two settings a sweep and kind, three rounds, and without what takes long to compile."""
        sweeps = {}
        for name, sweep in self.sweeps.items():
            small = [setting for setting in sweep if setting.n <= 4096]
            sweeps[name] = [s for s in small if [o for o in small if o.kind == s.kind].index(s) in (0, 2)]
        contestants = {name: one for name, one in self.contestants.items() if name != "flex"}
        return replace(self, sweeps=sweeps, pace=Pace(0.5, 3), contestants=contestants)


def _both(*points: tuple[int, float], **sizes: int) -> list[Setting]:
    """The settings at these points (n, density) with each kind of input that is made up."""
    return [Setting(n, density, kind, **sizes) for kind in MADE_UP for n, density in points]


ATTENTION = Grid(
    {
        "target": _both((4096, 0.01), (4096, 0.04), (16384, 0.0025), (65536, 0.0005)),
        "density": _both(*((4096, density) for density in (0.01, 0.0025, 0.04, 0.16, 0.5))),
        "n": _both(*((n, DEGREE / n) for n in (4096, 1024, 2048, 8192, 16384, 32768, 65536))),
        "clusters": [Setting(4096, 0.01, kind, k) for kind in MADE_UP for k in (128, 32, 256)],
    },
    Pace(1.5, 4),
    CONTESTANTS,
)
FITTED = Grid(
    {
        "n": [fitted_setting(2**power, 16.0) for power in range(9, 17)],
        "keys": [fitted_setting(n, keys) for n in (1024, 4096, 16384) for keys in (8.0, 16.0, 32.0)],
    },
    Pace(2.0, 5),
    FITTED_CONTESTANTS,
)
HALF = replace(
    FITTED,
    sweeps={"bfloat16": [fitted_setting(n, 16.0) for n in (1024, 2048, 4096, 16384)]},
    contestants={name: FITTED_CONTESTANTS[name] for name in (REFERENCE, OURS, "window")},
    dtype=torch.bfloat16,
)
GPU = Grid(
    {
        "fitted": [fitted_setting(n, 16.0) for n in (4096, 16384, 65536, 1024)],
        "gpu": _both(
            *((n, p) for n in (4096, 16384, 65536, 8192, 1024) for p in (0.01, 0.001, 0.1, 0.02, 0.5, EVERY_PAIR)),
            n_heads=8,
            d_head=64,  # which flash kernels are made for
        ),
    },
    Pace(1.0, 3, 21),
    CONTESTANTS,
    CUDA,
    torch.bfloat16,
)


def run(
    grid: Grid, track: Track = untracked, on_found: Callable[[dict[str, Any]], None] = lambda found: None
) -> dict[str, Any]:
    """Measures every setting: ``cases``, with a result for each contestant, and ``parts`` of the training step.

    ``on_found`` is called with everything found so far after each setting, since a GPU may fail for good in any.
    """
    found: dict[str, Any] = {"cases": [], "parts": []}
    settings = dict.fromkeys(setting for sweep in grid.sweeps.values() for setting in sweep)
    for setting in track(list(settings), description="attention"):
        case = build(setting).to(grid.device, grid.dtype)
        about = asdict(setting) | {"dtype": str(grid.dtype).removeprefix("torch.")}
        about["sweeps"] = [name for name, sweep in grid.sweeps.items() if setting in sweep]
        for is_training in (False, True):
            found["cases"].append(about | {"is_training": is_training, "results": compare(case, is_training, grid)})
        on_found(found)
        del case
        gc.collect(1)  # what is left is young; a full collection takes longer than many a race
        torch.cuda.empty_cache()
    parts = [setting for setting in grid.sweeps.get("target", ()) if setting.n <= 16384]
    for setting in track(parts, description="its parts"):
        found["parts"].append(asdict(setting) | {"results": take_apart(build(setting), grid.pace)})
    return found


def compare(case: Case, is_training: bool, grid: Grid) -> dict[str, Summary]:
    """A summary for each contestant that runs, with its ``peak`` on a GPU; ``{"missing": why}`` for the others.

    Ratios are to full attention; if that does not run, there are only times.
    """
    found: dict[str, Summary] = {}
    for name, contestant in grid.contestants.items():
        why = None if case.query.is_cuda else contestant.why_not(case.setting, is_training)
        found[name] = {"missing": why} if why else first_call(entry(contestant, case, is_training), grid.device)
    running = [name for name, one in found.items() if "missing" not in one]
    if running:
        entries = {name: entry(grid.contestants[name], case, is_training) for name in running}
        reference = REFERENCE if REFERENCE in running else running[0]
        for name, one in race(entries, grid.pace, reference=reference, headline=(OURS,)).items():
            kept = one if reference == REFERENCE else {key: x for key, x in one.items() if "ratio" not in key}
            found[name] = kept | found[name]
    return found


def first_call(first: Entry, device: torch.device = CPU) -> Summary:
    """What a contestant's first calls find: why it is ``missing``, or on a GPU the ``peak`` of its memory in MiB."""
    try:
        first.seconds()
        if device.type != "cuda":
            return {}
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        first.seconds()
        return {"peak": round((torch.cuda.max_memory_allocated(device) - before) / 2**20, 1)}
    except Exception as error:  # whatever a contestant raises on this machine is the finding, and the others go on
        if is_out_of_memory(error):
            return {"missing": "out of memory"}
        lines = (str(error).strip() or "no message").splitlines()
        message = " … ".join(dict.fromkeys((lines[0][:160], lines[-1][:160])))  # compilers put the reason last
        return {"missing": f"does not run here: {type(error).__name__}: {message}"}


def take_apart(case: Case, pace: Pace) -> dict[str, Summary]:
    """Times the training step and each of its parts in turn; ratios are shares of the whole step.

    - ``memberships``: the block model and its rate factors T = Q̂ S and K̂, forward, and backward to tokens and
      parameters;
    - ``sampling``: from the factors to the edges;
    - ``attention forward`` and ``attention backward`` along the edges, the latter to query, key, value and gate;
    - ``gate backward``: from the edges' gradients to those of the factors.
    """
    model = case.block_model()
    edges = sample_edges(model)
    query_rates, key_rates = rates = [t.detach().requires_grad_() for t in model.rate_factors()]
    rate_cotangents = [torch.randn_like(t) for t in rates]
    query, key, value = tokens = [t.detach().requires_grad_() for t in (case.query, case.key, case.value)]
    learned = [leaf for leaf in case.leaves if leaf is not case.value]
    gate = torch.ones(edges.n_edges, requires_grad=True)

    def attend(_: object = None) -> Tensor:
        return edge_attention(query, key, value, edges, gate)

    def backward(forward: Callable[[], Tensor], leaves: list[Tensor], cotangent: Tensor) -> Entry:
        return Entry(lambda out: torch.autograd.grad(out, leaves, cotangent), forward)

    parts = {
        WHOLE: entry(CONTESTANTS[OURS], case, is_training=True),
        "memberships": Entry(
            lambda _: torch.autograd.grad(list(case.block_model().rate_factors()), learned, rate_cotangents)
        ),
        "sampling": Entry(lambda _: sample_edges(model)),
        "attention forward": Entry(torch.no_grad()(attend)),
        "attention backward": backward(attend, [*tokens, gate], case.cotangent),
        "gate backward": backward(
            lambda: straight_through_gate(edge_dot(query_rates, key_rates, edges)), rates, torch.randn(edges.n_edges)
        ),
    }
    return race(parts, pace, reference=WHOLE)
