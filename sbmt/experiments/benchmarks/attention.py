"""Suites ``attention`` and ``fitted``: one layer, forward and as a training step, against full attention."""

import copy
import gc
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from sbmt.baselines.random_mask import RandomMaskAttention
from sbmt.command import is_out_of_memory
from sbmt.experiments.benchmarks.cases import MADE_UP, Case, Setting, build, fitted_setting
from sbmt.experiments.benchmarks.timing import Entry, Pace, Summary, race
from sbmt.experiments.progress import Track, untracked
from sbmt.types import AttentionOutput

REFERENCE, OURS = "sdpa", "sbm"
CPU = torch.device("cpu")
DEGREE = 0.01 * 4096  # keys per query, the same for every n of a sweep


def full_attention(case: Case) -> Tensor:
    """Full attention by torch; on a GPU by the flash kernel alone, which raises if it cannot run."""
    if not case.query.is_cuda:
        return scaled_dot_product_attention(case.query, case.key, case.value)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return scaled_dot_product_attention(case.query, case.key, case.value)


def layer_with(**changed: str) -> Callable[[Case], AttentionOutput]:
    """The case's layer with some settings changed, in training mode where gradients are wanted."""

    def attend(case: Case) -> AttentionOutput:
        layer = copy.copy(case.layer)  # shares the parameters
        for name, value in changed.items():
            setattr(layer, name, value)
        layer.training = torch.is_grad_enabled()
        output: AttentionOutput = layer(case.query, case.key, case.value)
        return output

    return attend


def window_attention(case: Case) -> AttentionOutput:
    """The window that holds as many keys as are drawn, through the library's own kernels."""
    setting = case.setting
    n_keys = round(setting.n * setting.density)
    layer = RandomMaskAttention(setting.d_head, setting.n_heads, mask_density=0.0, window=n_keys)
    output: AttentionOutput = layer(case.query, case.key, case.value)
    return output


@dataclass(frozen=True)
class Contestant:
    """One way to attend, and the largest input that it takes on a CPU; a GPU runs out of memory."""

    attend: Callable[[Case], Tensor | AttentionOutput]  # an auxiliary loss takes part in a training step
    most_pairs: int | float = math.inf  # over all heads
    most_edges: int | float = math.inf

    def why_not(self, setting: Setting) -> str | None:
        """Why it does not take part on a CPU, or None."""
        n_pairs = setting.n_heads * setting.n**2
        for size, most, what in (
            (n_pairs, self.most_pairs, "pairs"),
            (n_pairs * setting.density, self.most_edges, "edges"),
        ):
            if size > most:
                return f"left out above {most / 2**20:.0f} Mi {what} over all heads"
        return None


CONTESTANTS = {
    REFERENCE: Contestant(full_attention, most_pairs=2**30),
    OURS: Contestant(layer_with()),
    "pyg": Contestant(layer_with(backend="pyg"), most_edges=2**22),
    "dense": Contestant(layer_with(sampler="bernoulli", backend="dense"), most_pairs=2**24),
}
FITTED_CONTESTANTS = {name: CONTESTANTS[name] for name in (REFERENCE, OURS)} | {
    "window": Contestant(window_attention),
    "dense": Contestant(layer_with(backend="dense"), most_pairs=2**24),
}


def entry(contestant: Contestant, case: Case, is_training: bool) -> Entry:
    """What is timed: the output and, with ``is_training``, all gradients of its product with the cotangent."""

    def forward(_: object) -> Tensor:
        with torch.no_grad():
            output = contestant.attend(case)
            return output if isinstance(output, Tensor) else output.values

    def training(_: object) -> tuple[Tensor | None, ...]:
        output = contestant.attend(case)
        if isinstance(output, Tensor):
            return torch.autograd.grad(output, case.leaves, case.cotangent, allow_unused=True)
        outputs, cotangents = [output.values], [case.cotangent]
        if output.auxiliary_loss.requires_grad:
            outputs.append(output.auxiliary_loss)
            cotangents.append(torch.ones_like(output.auxiliary_loss))
        return torch.autograd.grad(outputs, case.leaves, cotangents, allow_unused=True)

    return Entry(training if is_training else forward)


def _both(*points: tuple[int, float], **sizes: int) -> list[Setting]:
    """The settings at these points (n, density) with each kind of input that is made up."""
    return [Setting(n, density, kind, **sizes) for kind in MADE_UP for n, density in points]


SWEEPS: dict[str, dict[str, list[Setting]]] = {
    "attention": {
        "target": _both((4096, 0.01), (4096, 0.04), (16384, 0.0025), (65536, 0.0005)),
        "density": _both(*((4096, density) for density in (0.01, 0.0025, 0.04, 0.16, 0.5))),
        "n": _both(*((n, DEGREE / n) for n in (4096, 1024, 2048, 8192, 16384, 32768, 65536))),
        "clusters": _both((4096, 0.01), n_clusters=32) + _both((4096, 0.01)) + _both((4096, 0.01), n_clusters=256),
    },
    "fitted": {
        "n": [fitted_setting(2**power, 16.0) for power in range(9, 17)],
        "keys": [fitted_setting(n, keys) for n in (1024, 4096, 16384) for keys in (8.0, 16.0, 32.0)],
    },
}
"""Settings by suite and sweep."""


def quick(sweeps: dict[str, list[Setting]]) -> dict[str, list[Setting]]:
    """Up to 4,096 tokens, and two settings a sweep and kind."""
    found = {}
    for name, sweep in sweeps.items():
        small = [setting for setting in sweep if setting.n <= 4096]
        found[name] = [s for s in small if [o for o in small if o.kind == s.kind].index(s) in (0, 2)]
    return found


def run(
    sweeps: dict[str, list[Setting]],
    contestants: dict[str, Contestant],
    pace: Pace,
    device: torch.device = CPU,
    track: Track = untracked,
) -> dict[str, Any]:
    """Measures every setting, forward and as a training step: ``cases``, with a result for each contestant.

    On a GPU, queries, keys and values are bfloat16, as under autocast.
    """
    cases = []
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    settings = dict.fromkeys(setting for sweep in sweeps.values() for setting in sweep)  # each once
    for setting in track(list(settings), description="attention"):
        case = build(setting).to(device, dtype)
        about = asdict(setting) | {"dtype": str(dtype).removeprefix("torch.")}
        about["sweeps"] = [name for name, sweep in sweeps.items() if setting in sweep]
        for is_training in (False, True):
            results = compare(case, is_training, contestants, pace)
            cases.append(about | {"is_training": is_training, "results": results})
        del case
        gc.collect(1)  # what is left is young; a full collection takes longer than many a race
        torch.cuda.empty_cache()
    return {"cases": cases}


def compare(case: Case, is_training: bool, contestants: dict[str, Contestant], pace: Pace) -> dict[str, Summary]:
    """A summary for each contestant that runs, with its ``peak`` on a GPU; ``{"missing": why}`` for the others.

    Ratios are to full attention; if that does not run, there are only times.
    """
    found: dict[str, Summary] = {}
    entries = {name: entry(contestant, case, is_training) for name, contestant in contestants.items()}
    for name, contestant in contestants.items():
        why = None if case.query.is_cuda else contestant.why_not(case.setting)
        found[name] = {"missing": why} if why else first_call(entries[name], case.query.device)
    running = {name: one for name, one in entries.items() if "missing" not in found[name]}
    if running:
        reference = REFERENCE if REFERENCE in running else next(iter(running))
        for name, one in race(running, pace, reference=reference, headline=(OURS,) if OURS in running else ()).items():
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
        message = (str(error).strip() or "no message").splitlines()[0][:160]
        return {"missing": f"does not run here: {type(error).__name__}: {message}"}
