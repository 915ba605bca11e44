"""Suites ``attention``, ``fitted`` and ``gpu``: one layer, forward and as a training step, against full attention."""

import gc
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from math import inf
from time import monotonic
from typing import Any

import torch

from sbmt.command import is_out_of_memory
from sbmt.errors import SbmtError
from sbmt.experiments.benchmarks.cases import MADE_UP, Case, Setting, build, fitted_setting
from sbmt.experiments.benchmarks.contestants import (
    CONTESTANTS,
    FITTED_CONTESTANTS,
    GPU_CONTESTANTS,
    OURS,
    REFERENCE,
    Contestant,
    entry,
)
from sbmt.experiments.benchmarks.parts import take_apart
from sbmt.experiments.benchmarks.timing import CPU, Entry, Pace, Summary, race
from sbmt.experiments.progress import Track, untracked
from sbmt.samplers import sample_edges

CUDA = torch.device("cuda")
DEGREE = 0.01 * 4096  # keys per query, the same for every n of a sweep
EVERY_PAIR = 0.9999  # stands for 100 %: the sigmoid of a membership is never quite 1


@dataclass(frozen=True)
class Grid:
    """What to measure.

    Attributes:
        sweeps: Settings by sweep, the most telling ones first; a setting that sweeps share is measured once.
        pace: Pace of each race.
        contestants: Who takes part.
        parts: Settings in which the training step is broken down into its parts.
        ours: Names of contestants that never sit out.
        device: Where to measure.
        dtype: Type of query, key and value; the layer stays float32.
    """

    sweeps: Mapping[str, list[Setting]]
    pace: Pace
    contestants: Mapping[str, Contestant]
    parts: list[Setting]
    ours: tuple[str, ...] = (OURS,)
    device: torch.device = CPU
    dtype: torch.dtype = torch.float32

    def settings(self) -> list[Setting]:
        """All settings of all sweeps."""
        return list(dict.fromkeys(setting for sweep in self.sweeps.values() for setting in sweep))


def of_both_kinds(*points: tuple[int, float], **more: int) -> list[Setting]:
    """The settings at these points (n, density) with each kind of input."""
    return [Setting(n, density, kind, **more) for kind in MADE_UP for n, density in points]


def _gpu_grid(
    lengths: tuple[int, ...], sizes: tuple[int, ...], densities: tuple[float, ...], pace: Pace, without: str = ""
) -> Grid:
    """Fitted masks as they were trained, and eight heads of width 64, which flash kernels are made for."""
    points = [(n, density) for n in sizes for density in densities]
    contestants = {name: one for name, one in GPU_CONTESTANTS.items() if name != without}
    sweeps = {
        "fitted": [fitted_setting(n, 16.0) for n in lengths],
        "gpu": of_both_kinds(*points, n_heads=8, d_head=64),
    }
    return Grid(sweeps, pace, contestants, [], ("sparse",), CUDA, torch.bfloat16)


def _fitted_grids(
    sweeps: Mapping[str, list[Setting]], lengths: tuple[int, ...], pace: Pace, without: str = ""
) -> list[Grid]:
    """Sweeps in float32, and then lengths in bfloat16, which not every contestant takes."""
    contestants = {name: one for name, one in FITTED_CONTESTANTS.items() if name != without}
    half = {name: FITTED_CONTESTANTS[name] for name in (REFERENCE, OURS, "window")}
    in_half = {"bfloat16": [fitted_setting(n, 16.0) for n in lengths]}
    return [Grid(sweeps, pace, contestants, []), Grid(in_half, pace, half, [], dtype=torch.bfloat16)]


FULL = Grid(
    {
        "target": of_both_kinds((4096, 0.01), (4096, 0.04), (16384, 0.0025), (65536, 0.0005)),
        "density": of_both_kinds(*((4096, density) for density in (0.0025, 0.01, 0.04, 0.16, 0.5))),
        "n": of_both_kinds(*((n, DEGREE / n) for n in (1024, 2048, 4096, 8192, 16384, 32768, 65536))),
        "clusters": [Setting(4096, 0.01, kind, k) for kind in MADE_UP for k in (32, 128, 256)],
    },
    Pace(1.5, 4),
    CONTESTANTS,
    of_both_kinds((4096, 0.01), (4096, 0.04), (16384, 0.0025)),
)
QUICK = Grid(
    {
        "target": of_both_kinds((4096, 0.01)),
        "density": of_both_kinds((4096, 0.01), (4096, 0.16)),
        "n": of_both_kinds((1024, DEGREE / 1024), (4096, DEGREE / 4096)),
    },
    Pace(1.0, 3),
    {name: one for name, one in CONTESTANTS.items() if name != "flex"},  # compiling it takes longer than the rest
    of_both_kinds((4096, 0.01)),
)
FITTED_FULL = _fitted_grids(
    {
        "n": [fitted_setting(2**power, 16.0) for power in range(9, 17)],
        "keys": [fitted_setting(n, keys) for n in (1024, 4096, 16384) for keys in (8.0, 16.0, 32.0)],
    },
    (1024, 2048, 4096, 16384),
    Pace(2.0, 5),
)
FITTED_QUICK = _fitted_grids(
    {"n": [fitted_setting(n, 16.0) for n in (1024, 4096)]}, (4096,), Pace(1.0, 3), without="flex"
)
GPU_FULL = _gpu_grid(
    (4096, 16384, 65536, 1024),
    (4096, 16384, 65536, 8192, 1024),
    (0.001, 0.01, 0.02, 0.1, 0.5, EVERY_PAIR),
    pace=Pace(1.0, 3, 21),
)
GPU_QUICK = _gpu_grid((4096,), (4096, 1024), (0.01, 0.1), pace=Pace(0.3, 3, 11), without="flex")


def run(
    grid: Grid,
    track: Track = untracked,
    *,
    minutes: float = inf,
    before: dict[str, Any] | None = None,
    on_found: Callable[[dict[str, Any]], None] = lambda found: None,
) -> dict[str, Any]:
    """Measures every setting that ``before`` does not hold yet.

    Args:
        grid: What to measure.
        track: Shows progress.
        minutes: No further setting begins after this time.
        before: What an earlier run returned.
        on_found: Called with everything found so far after each setting.

    Returns:
        ``cases``, with a result for each contestant; ``parts``; and ``left_out``, the settings for which there was no
        time.

    Raises:
        SbmtError: If a call left the GPU unusable. What was found until then has been handed over.
    """
    end = monotonic() + 60 * minutes
    found: dict[str, Any] = {"cases": [], "parts": []} | (before or {}) | {"left_out": []}
    done = {_key(case) for case in found["cases"]}
    for setting in track(grid.settings(), description="attention"):
        if _key(asdict(setting) | {"dtype": _name(grid.dtype)}) in done:
            continue
        if monotonic() >= end:
            found["left_out"].append(str(setting))
            continue
        case = build(setting).to(grid.device, grid.dtype)
        about = _about(case) | {"sweeps": [name for name, sweep in grid.sweeps.items() if setting in sweep]}
        for is_training in (False, True):
            results = compare(case, is_training, grid)
            found["cases"].append(about | {"is_training": is_training, "results": results})
        on_found(found)
        del case
        _check_alive(grid.device, setting)
    for setting in track(grid.parts, description="its parts"):
        case = build(setting)
        found["parts"].append(_about(case) | {"results": take_apart(case, grid.pace)})
    return found


def compare(case: Case, is_training: bool, grid: Grid) -> dict[str, Summary]:
    """A summary for each contestant that runs, with its ``peak`` on a GPU; ``{"missing": why}`` for the others.

    Ratios are to :data:`~sbmt.experiments.benchmarks.contestants.REFERENCE`; if that does not run, there are only
    times.
    """
    found: dict[str, Summary] = {}
    entries: dict[str, Entry] = {}
    for name, contestant in grid.contestants.items():
        why = contestant.why_not(case.setting, is_training)
        found[name] = {"missing": why} if why else first_call(entry(contestant, case, is_training))
        if "missing" not in found[name]:
            entries[name] = entry(contestant, case, is_training)
    if entries:
        reference = REFERENCE if REFERENCE in entries else next(iter(entries))
        headline = tuple(name for name in grid.ours if name in entries)
        for name, one in race(entries, grid.pace, reference=reference, headline=headline).items():
            kept = one if reference == REFERENCE else {key: x for key, x in one.items() if "ratio" not in key}
            found[name] = kept | found[name]
    return found


def first_call(first: Entry) -> Summary:
    """What a contestant's first calls find: why it is ``missing``, or on a GPU the ``peak`` of its memory in MiB."""
    try:
        first.seconds()
        if first.device.type != "cuda":
            return {}
        torch.cuda.reset_peak_memory_stats(first.device)
        before = torch.cuda.memory_allocated(first.device)
        first.seconds()
        return {"peak": round((torch.cuda.max_memory_allocated(first.device) - before) / 2**20, 1)}
    except Exception as error:  # whatever a contestant raises on this machine is the finding, and the others go on
        if is_out_of_memory(error):
            return {"missing": "out of memory"}
        lines = (str(error).strip() or "no message").splitlines()
        message = " … ".join(dict.fromkeys((lines[0][:160], lines[-1][:160])))  # compilers put the reason last
        return {"missing": f"does not run here: {type(error).__name__}: {message}"}


def _check_alive(device: torch.device, setting: Setting) -> None:
    """Frees memory; raises SbmtError if the device does not compute any more, as after an illegal memory access."""
    gc.collect(1)  # what is left is young; a full collection takes longer than many a race
    try:
        torch.ones(2, device=device).sum().item()
        torch.cuda.empty_cache()
    except RuntimeError as error:
        raise SbmtError("a GPU that answers", f"none after {setting}", "run it again with --resume") from error


def _key(case: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(case[name] for name in ("kind", "n", "density", "n_clusters", "dtype"))


def _about(case: Case) -> dict[str, Any]:
    """The setting as JSON holds it, with the density that was reached."""
    with torch.no_grad():
        model = case.block_model()
        reached = (
            (model.expected_density() if model.has_closed_density else sample_edges(model).density()).mean().item()
        )
    dtype = _name(case.query.dtype)
    return asdict(case.setting) | {"dtype": dtype, "expected_density": float(f"{reached:.4g}")}


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
