"""The suites: one attention layer in a forward pass and a training step, timed in turn with full attention."""

import copy
import gc
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

from sbmt.baselines.random_mask import RandomMaskAttention
from sbmt.command import is_out_of_memory
from sbmt.errors import SbmtError, choose
from sbmt.experiments.benchmarks.cases import MADE_UP, Case, Setting, build, fitted_setting
from sbmt.experiments.benchmarks.timing import Entry, Pace, Summary, race
from sbmt.experiments.files import check_form, read_json, write_json
from sbmt.experiments.manifest import machine_manifest
from sbmt.experiments.memory import peak_of
from sbmt.types import AttentionOutput

Planned = tuple[Setting, list[dict[str, Any]]]  # with what a results file says of its forward and training case
Track = Callable[..., Iterable[Any]]  # such as rich's: track(items, description=...) yields the same items
REFERENCE, OURS = "sdpa", "sbm"
DEGREE = 0.01 * 4096  # keys per query, the same for every n of a sweep


def _both(*points: tuple[int, float], **sizes: int) -> list[list[Setting]]:
    """For each point (n, density) the settings with each kind of made-up input."""
    return [[Setting(n, density, kind, **sizes) for kind in MADE_UP] for n, density in points]


SUITES: dict[str, dict[str, list[list[Setting]]]] = {
    "attention": {
        "target": _both((4096, 0.01), (4096, 0.04), (16384, 0.0025), (65536, 0.0005)),
        "density": _both(*((4096, density) for density in (0.01, 0.04, 0.0025, 0.16, 0.5))),
        "n": _both(*((n, DEGREE / n) for n in (4096, 2048, 1024, 8192, 16384, 32768, 65536))),
        "clusters": _both((4096, 0.01), n_clusters=32) + _both((4096, 0.01)) + _both((4096, 0.01), n_clusters=256),
    },
    "fitted": {
        "n": [[fitted_setting(2**power, 16.0)] for power in range(9, 17)],
        "keys": [[fitted_setting(n, keys)] for n in (1024, 4096, 16384) for keys in (8.0, 16.0, 32.0)],
    },
}
"""The settings at each point of each sweep of a suite."""


def full_attention(case: Case, kernel: SDPBackend = SDPBackend.FLASH_ATTENTION) -> Tensor:
    """Full attention by one kernel of torch, which raises if it cannot run; ``MATH`` keeps all scores in memory."""
    with sdpa_kernel(kernel):
        return scaled_dot_product_attention(case.query, case.key, case.value)


def sbm_attention(case: Case, backend: str = "auto") -> Any:
    """The case's layer, in training mode where gradients are wanted; with ``"dense"`` it draws every pair if it can."""
    layer = copy.copy(case.layer)  # shares the parameters
    layer.backend = backend
    if backend == "dense" and case.setting.kind != "fitted":
        layer.sampler = "bernoulli"
    layer.training = torch.is_grad_enabled()
    return layer(case.query, case.key, case.value)


def window_attention(case: Case) -> Any:
    """A window of as many keys as are drawn, through the library's own kernels."""
    setting = case.setting
    n_keys = round(setting.n * setting.density)
    layer = RandomMaskAttention(setting.d_head, setting.n_heads, mask_density=0.0, window=n_keys)
    return layer(case.query, case.key, case.value)


@cache
def _flex_window(n: int, reach: int, device: torch.device) -> Callable[..., Any]:
    """FlexAttention, compiled, over keys at most ``reach`` places away."""
    mask = create_block_mask(lambda b, h, i, j: (i - j).abs() <= reach, None, None, n, n, device=str(device))
    return partial(torch.compile(flex_attention), block_mask=mask)


def flex_window(case: Case) -> Any:
    """The same window through FlexAttention, whose mask is made once."""
    reach = round(case.setting.n * case.setting.density) // 2
    return _flex_window(case.setting.n, reach, case.query.device)(case.query, case.key, case.value)


CONTESTANTS: dict[str, Callable[[Case], Tensor | AttentionOutput]] = {
    REFERENCE: full_attention,
    "math": lambda case: full_attention(case, SDPBackend.MATH),
    OURS: sbm_attention,
    "pyg": lambda case: sbm_attention(case, "pyg"),
    "window": window_attention,
    "dense": lambda case: sbm_attention(case, "dense"),
    "flex": flex_window,
}
ON_GPU = {"attention": (), "fitted": ("flex",)}  # besides the following
IN_SUITE = {"attention": (REFERENCE, OURS, "math", "pyg", "dense"), "fitted": (REFERENCE, OURS, "window", "dense")}


def too_large(name: str, setting: Setting) -> str | None:
    """Why a contestant does not take part in a case on a CPU, or None; on a GPU, it runs out of memory."""
    n_pairs = setting.n_heads * setting.n**2
    most = {REFERENCE: 2**30, "math": 2**26, "dense": 2**24, "pyg": 2**22}.get(name, n_pairs)
    size, what = (n_pairs * setting.density, "edges") if name == "pyg" else (n_pairs, "pairs")
    return None if size <= most else f"left out above {most / 2**20:.0f} Mi {what} over all heads"


def entry(name: str, case: Case, is_training: bool) -> Entry:
    """The timed call: the output, or with ``is_training`` all gradients of its product with the cotangent."""

    def call(_: object) -> tuple[Tensor | None, ...]:
        with torch.set_grad_enabled(is_training):
            output = CONTESTANTS[name](case)
        values, loss = (output, None) if isinstance(output, Tensor) else (output.values, output.auxiliary_loss)
        if not is_training:
            return (values,)
        losses = [loss] if loss is not None and loss.requires_grad else []
        cotangents = [case.cotangent, *map(torch.ones_like, losses)]
        return torch.autograd.grad([values, *losses], case.leaves, cotangents, allow_unused=True)

    return Entry(call)


def compare(case: Case, is_training: bool, names: Sequence[str], pace: Pace) -> dict[str, Summary]:
    """A summary for each contestant that runs, with the ``peak`` of its memory; ``{"missing": why}`` for the others.

    Ratios are to full attention; if that does not run, there are only times.
    """
    found: dict[str, Summary] = {}
    entries = {name: entry(name, case, is_training) for name in names}
    for name in names:
        why = None if case.query.is_cuda else too_large(name, case.setting)
        found[name] = {"missing": why} if why else first_call(entries[name], case.query.device)
    running = {name: entries[name] for name in names if "missing" not in found[name]}
    if running:
        reference = REFERENCE if REFERENCE in running else next(iter(running))
        times = race(running, pace, reference=reference, headline=tuple({OURS} & running.keys()))
        for name, one in times.items():
            found[name] |= {key: x for key, x in one.items() if reference == REFERENCE or "ratio" not in key}
    return found


def first_call(first: Entry, device: torch.device) -> Summary:
    """Why a contestant is ``missing``, or its ``peak`` of memory in MiB, which is measured only on GPUs and Linux."""
    try:
        first.seconds()
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            before = torch.cuda.memory_allocated(device)
            first.seconds()
            return {"peak": round((torch.cuda.max_memory_allocated(device) - before) / 2**20, 1)}
        return {"peak": round(peak_of(first.seconds), 1)} if sys.platform == "linux" else {}
    except Exception as error:  # whatever a contestant raises is its result, and the others continue
        if is_out_of_memory(error):
            return {"missing": "out of memory"}
        message = (str(error).strip() or "no message").splitlines()[0][:160]
        return {"missing": f"does not run here: {type(error).__name__}: {message}"}


def plan_cases(suite: str, is_quick: bool, device: torch.device) -> list[Planned]:
    """The settings of a suite in the order of measurement, each with a forward pass and a training step.

    Quick ones are those at the first two points of each sweep. On a GPU, queries, keys and values are bfloat16, as
    under autocast.
    """
    points = choose("suite", suite, SUITES)
    sweeps = {sweep: list(chain(*mine[: 2 if is_quick else None])) for sweep, mine in points.items()}
    dtype = "bfloat16" if device.type == "cuda" else "float32"
    plan: list[Planned] = []
    for setting in dict.fromkeys(chain(*sweeps.values())):  # each once
        about = asdict(setting) | {"dtype": dtype, "sweeps": [name for name, mine in sweeps.items() if setting in mine]}
        plan.append((setting, [about | {"is_training": way} for way in (False, True)]))
    return plan


def run_suites(
    names: Sequence[str] = (),
    *,
    is_quick: bool = False,
    threads: int | None = None,
    device: str = "cpu",
    path: Path | None = None,
    track: Track = lambda items, description: items,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Runs suites, all if none are named, and returns a results file: ``manifest``, and ``suites`` by name.

    ``is_quick`` takes a minute: fewer cases, fewer rounds. ``threads`` are those of torch and of the compiled kernels,
    and ``device`` is ``"cpu"`` or ``"cuda"``. The result is written to ``path`` after each setting; if the file exists,
    the cases in it are not measured again, which ``say`` is told.

    Raises:
        SbmtError: If the file at ``path`` has other settings or was measured on another machine.
    """
    before = torch.get_num_threads()
    threads = before if threads is None else threads
    if not 1 <= threads <= 1024:
        raise SbmtError("1 to 1024 threads", threads, "use at most one per core")
    usable = torch.device(choose("device", device, {"cpu": "cpu", "cuda": "cuda"}))
    if usable.type == "cuda" and not torch.cuda.is_available():
        raise SbmtError("a GPU that torch can use for the device cuda", "none", "use cpu, or a build of torch for CUDA")
    plan = {name: plan_cases(name, is_quick, usable) for name in names or SUITES}
    pace = Pace(0.5, 3) if is_quick else Pace(2.0, 5)
    torch.set_num_threads(threads)
    try:
        result: dict[str, Any] = {"manifest": machine_manifest(usable), "is_quick": is_quick, "device": device}
        result["suites"] = {name: {"found": {"cases": []}} for name in plan}
        if path is not None and path.exists():
            result = resumed(path, result, plan)
            n_found = sum(len(suite["found"]["cases"]) for suite in result["suites"].values())
            say(f"{n_found} of {2 * sum(map(len, plan.values()))} cases are in {path} already.")
        for name, settings in plan.items():
            cases = result["suites"][name]["found"]["cases"]
            contestants = IN_SUITE[name] + ON_GPU[name] * (usable.type == "cuda")
            for setting, pair in track(settings[len(cases) // 2 :], description=name):
                case = build(setting, device=usable, dtype=getattr(torch, pair[0]["dtype"]))
                with torch.random.fork_rng(devices=[]):
                    torch.manual_seed(0)
                    cases += [
                        about | {"results": compare(case, about["is_training"], contestants, pace)} for about in pair
                    ]
                if path is not None:
                    write_json(path, result)
                del case
                gc.collect(1)  # what is left is young; a full collection takes longer than many a race
                torch.cuda.empty_cache()
    finally:
        torch.set_num_threads(before)
    return result


def resumed(path: Path, result: dict[str, Any], plan: dict[str, list[Planned]]) -> dict[str, Any]:
    """The content of a results file to which cases will be added; SbmtError if it differs from what is planned."""
    before = read_json(path)
    check_form(before, {"manifest": dict, "suites": dict}, str(path))
    _check_same(path, *({**one["manifest"], **one, "suites": list(one["suites"])} for one in (result, before)))
    for name, settings in plan.items():
        check_form(before["suites"][name], {"found": {"cases": list[dict]}}, f"{name} of {path}")
        planned = chain(*(pair for _, pair in settings))
        for about, case in zip(planned, before["suites"][name]["found"]["cases"], strict=False):
            _check_same(path, about, case)
    return before


def _check_same(path: Path, now: dict[str, Any], before: dict[str, Any]) -> None:
    names = now.keys() - {"command", "date", "manifest"}
    changed = [name for name in now if name in names and now[name] != before.get(name)]
    if changed:
        values = ", ".join(f"{name} is {now[name]}, the file has {before.get(name)}" for name in changed)
        raise SbmtError(f"cannot resume {path}: {values}: name another file, or remove this one to start anew")
