"""The suites: one attention layer in a forward pass and a training step, timed in turn with full attention."""

import copy
import gc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

from sbmt.block_model.model import SMALLEST_PROBABILITY
from sbmt.errors import SbmtError, choose
from sbmt.experiments.benchmarks.cases import MADE_UP, Case, Setting, build, fitted_setting
from sbmt.experiments.benchmarks.machine import machine_manifest, peak_of
from sbmt.experiments.benchmarks.timing import Entry, Summary, race
from sbmt.experiments.files import read_json, write_json
from sbmt.kernels.gpu.points import compiled_for
from sbmt.layers.sbm import LARGEST_LEARNED
from sbmt.types import AttentionOutput

Planned = tuple[Setting, dict[str, Any]]  # with what a results file says of the case
Track = Callable[..., Iterable[Any]]  # such as rich's: track(items, description=...) yields the same items
REFERENCE, OURS = "sdpa", "sbm"
MOST_TOKENS = 16_384  # tokens of full attention on a CPU
DTYPES = {"cpu": torch.float32, "cuda": torch.bfloat16}  # of queries, keys and values; on a GPU as under autocast


def full_attention(case: Case) -> Tensor:
    """Computes full attention with torch's flash kernel, which raises if it cannot run."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return scaled_dot_product_attention(case.query, case.key, case.value)


def sbm_attention(case: Case) -> AttentionOutput:
    """Runs the case's layer, in training mode if gradients are enabled."""
    layer = copy.copy(case.layer)  # shares the parameters
    layer.training = torch.is_grad_enabled()
    return layer(case.query, case.key, case.value, generator=case.generator)


def flex_window(case: Case) -> Tensor:
    """Runs compiled FlexAttention over a window with as many keys as a query has edges on average."""
    n, n_keys = case.setting.n, round(case.setting.n * case.setting.density)
    return _flex_window(n, n_keys // 2, case.query.device)(case.query, case.key, case.value)


@cache
def _flex_window(n: int, reach: int, device: torch.device) -> Callable[..., Tensor]:
    make_mask = torch.compile(create_block_mask)  # which otherwise needs memory for all pairs
    mask = make_mask(lambda b, h, i, j: (i - j).abs() <= reach, None, None, n, n, device=str(device))
    return partial(torch.compile(flex_attention, dynamic=False), block_mask=mask)


def compiled_points(case: Case) -> Any:
    """Runs plain PyTorch in static shapes, compiled for the case."""
    attend = compiled_for(case.layer, case.query, case.key, SMALLEST_PROBABILITY, LARGEST_LEARNED / 2)
    return attend(case.query, case.key, case.value)


CONTESTANTS = {REFERENCE: full_attention, OURS: sbm_attention, "flex": flex_window, "compiled": compiled_points}
GRAPHS = {"sdpa-graph": REFERENCE, "sbm-graph": OURS, "compiled-graph": "compiled"}
"""Contestants that replay another one's forward pass, captured in a CUDA graph."""


Sweeps = dict[str, list[Setting]]
SUITES: dict[str, Sweeps] = {
    "attention": {
        "density": [Setting(4096, density, x) for density in (0.01, 0.04, 0.0025, 0.16, 0.5) for x in MADE_UP],
        "n": [Setting(1024 * x, 0.04 / x, kind) for x in (4, 2, 1, 8, 16, 32, 64) for kind in MADE_UP],
    },
    "fitted": {
        "n": [fitted_setting(2**power, 16) for power in range(9, 17)],
        "keys": [fitted_setting(n, keys) for n in (1024, 4096, 16384) for keys in (8, 16, 32)],
    },
}
"""The settings of each sweep of a suite."""
POINTS = [(n, keys) for keys in (16, 32) for n in (4096, 16384, 65536)]
ON_GPU: dict[str, Sweeps] = SUITES | {
    "fitted": {f"{h}x{d}": [fitted_setting(n, keys, h, d) for n, keys in POINTS] for h, d in ((4, 32), (8, 64))}
}


def entry(name: str, case: Case, is_training: bool) -> Entry:
    """Returns the timed call, which computes the output or, with ``is_training``, all gradients for the cotangent."""
    if name in GRAPHS:
        return Entry(lambda graph: graph.replay(), cache(partial(captured, case, GRAPHS[name])), on_gpu=True)

    def call(_: object) -> tuple[Tensor | None, ...]:
        with torch.set_grad_enabled(is_training):
            output = CONTESTANTS[name](case)
        values, loss = (output, None) if isinstance(output, Tensor) else (output.values, output.auxiliary_loss)
        if not is_training:
            return (values,)
        losses = [loss] if loss is not None and loss.requires_grad else []
        cotangents = [case.cotangent, *map(torch.ones_like, losses)]
        return torch.autograd.grad([values, *losses], case.leaves, cotangents, allow_unused=True)

    return Entry(call, on_gpu=case.query.is_cuda)


@torch.no_grad()
def captured(case: Case, name: str) -> torch.cuda.CUDAGraph:
    """Captures a contestant's forward pass in a CUDA graph, which draws a new mask in every replay."""
    case = replace(case, generator=torch.Generator(case.query.device))
    CONTESTANTS[name](case)  # compiles
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(case.generator)
    with torch.cuda.graph(graph):
        CONTESTANTS[name](case)
    return graph


def compare(case: Case, is_training: bool, names: Iterable[str], **limits: Any) -> dict[str, Summary]:
    """Returns a summary with ``peak`` memory for each contestant that runs, and ``{"missing": why}`` for the others.

    Ratios are to full attention; if that does not run, there are only times. ``limits`` are those of :func:`race`.
    """
    entries = {name: entry(name, case, is_training) for name in names if not (is_training and name in GRAPHS)}
    found = {name: first_call(name, one, case) for name, one in entries.items()}
    running = {name: one for name, one in entries.items() if "missing" not in found[name]}
    if running:
        reference = REFERENCE if REFERENCE in running else next(iter(running))
        times = race(running, reference=reference, **limits)
        for name, one in times.items():
            found[name] |= {key: x for key, x in one.items() if reference == REFERENCE or "ratio" not in key}
    return found


def first_call(name: str, first: Entry, case: Case) -> Summary:
    """Returns why a contestant is ``missing``, or the ``peak`` of its tensors in MiB."""
    device = case.query.device
    if (name, device.type) == (REFERENCE, "cpu") and case.setting.n > MOST_TOKENS:
        return {"missing": f"left out above {MOST_TOKENS:,} tokens"}
    try:
        first.seconds()
        if name in GRAPHS:  # its memory was allocated when it was captured
            return {}
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            before = torch.cuda.memory_allocated(device)
            first.seconds()
            return {"peak": round((torch.cuda.max_memory_allocated(device) - before) / 2**20, 1)}
        return {"peak": round(peak_of(first.seconds), 1)}
    except Exception as error:  # whatever a contestant raises is its result, and the others continue
        message = (str(error).strip() or "no message").splitlines()[0][:160]
        return {"missing": f"does not run here: {type(error).__name__}: {message}"}


def plan_cases(sweeps: Sweeps, is_quick: bool, device: str) -> list[Planned]:
    """Returns the cases in order of measurement: for each setting a forward pass, then a training step.

    Quick ones are those with the first four settings of each sweep.
    """
    chosen = {sweep: settings[: 4 if is_quick else None] for sweep, settings in sweeps.items()}
    plan: list[Planned] = []
    for setting in dict.fromkeys(chain(*chosen.values())):  # each once
        about = asdict(setting) | {"dtype": str(DTYPES[device]).removeprefix("torch.")}
        about["sweeps"] = [sweep for sweep, settings in chosen.items() if setting in settings]
        plan += [(setting, about | {"is_training": way}) for way in (False, True)]
    return plan


def run_suites(
    names: Sequence[str] = (),
    *,
    is_quick: bool = False,
    device: str = "cpu",
    path: Path | None = None,
    track: Track = lambda items, description: items,
) -> dict[str, Any]:
    """Runs suites, all if none are named, and returns a results file: ``manifest``, and ``suites`` by name.

    ``is_quick`` measures fewer cases in fewer rounds, in about a minute. ``device`` is ``"cpu"`` or ``"cuda"``. The
    result is written to ``path`` after each case. If the file exists, the cases in it are not measured again.

    Raises:
        SbmtError: If the file at ``path`` has other settings or was measured on another machine.
    """
    suites = choose("device", device, {"cpu": SUITES, "cuda": ON_GPU})
    if device == "cuda" and not torch.cuda.is_available():
        raise SbmtError("a GPU that torch can use for the device cuda", "none", "use cpu, or a build of torch for CUDA")
    plan = {name: plan_cases(choose("suite", name, suites), is_quick, device) for name in names or suites}
    result: dict[str, Any] = {"manifest": machine_manifest(torch.device(device))}
    result |= {"is_quick": is_quick, "device": device, "suites": {name: {"found": {"cases": []}} for name in plan}}
    if path is not None and path.exists():
        result = resumed(path, result, plan)
    seconds, least = (0.5, 3) if is_quick else (2.0, 5)  # of each race
    for name, planned in plan.items():
        cases = result["suites"][name]["found"]["cases"]
        contestants = CONTESTANTS | GRAPHS if (name, device) == ("fitted", "cuda") else (REFERENCE, OURS)
        remaining = track(planned[len(cases) :], description=name)
        for setting, pair in groupby(remaining, key=lambda one: one[0]):
            case = build(setting, device=device, dtype=DTYPES[device])
            if device == "cuda":
                torch.compiler.reset()  # since torch no longer compiles a function after a few shapes
            for _, about in pair:
                found = compare(case, about["is_training"], contestants, seconds=seconds, least=least)
                cases.append(about | {"results": found})
                if path is not None:
                    write_json(path, result, has_checksum=True)
                gc.collect(1)  # what is left is young; a full collection takes longer than many a race
                torch.cuda.empty_cache()
    return result


def resumed(path: Path, result: dict[str, Any], plan: dict[str, list[Planned]]) -> dict[str, Any]:
    """Reads a results file to which cases will be added; raises SbmtError if it does not match the plan."""
    before = read_json(path, has_checksum=True)
    now, then = ({**one["manifest"], **one, "suites": list(one["suites"])} for one in (result, before))
    pairs = [({name: x for name, x in now.items() if name not in ("command", "date", "manifest")}, then)]
    for name in (name for name in plan if name in before["suites"]):
        pairs += zip((about for _, about in plan[name]), before["suites"][name]["found"]["cases"], strict=False)
    for planned, found in pairs:
        if changed := [name for name in planned if planned[name] != found.get(name)]:
            values = ", ".join(f"{name} is {planned[name]}, the file has {found.get(name)}" for name in changed)
            raise SbmtError(f"cannot resume {path}: {values}: name another file, or remove this one to start over")
    return before
