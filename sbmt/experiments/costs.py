"""Operations and memory of the attentions in the models of the paper, as its Table 3 has them.

``python -m sbmt.experiments.costs CASES`` is what measures memory in a process of its own.
"""

import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from sbmt.cost import count_operations, uncounted
from sbmt.errors import SbmtError, check_sizes, choose
from sbmt.experiments.benchmarks.cases import shift_to_density
from sbmt.experiments.memory import STEADY, in_fresh_process, peak_of
from sbmt.experiments.progress import Track, untracked
from sbmt.experiments.tables import LEFT_OUT, Table
from sbmt.experiments.training.tasks import PAPER, LongRangeConfig
from sbmt.layers import SBMAttention
from sbmt.layers.registry import ATTENTIONS, RESERVED
from sbmt.models import DualEncoder, Encoder, SequenceClassifier
from sbmt.registration import load_plugins

DENSITIES = {"listops": 0.0115, "text": 0.1062, "retrieval": 0.0249, "image": 0.0133, "pathfinder": 0.0261}
"""Densities of the paper's models trained with λ = 1e-1 (Table 2), the models that its Table 3 describes."""
N_IDS, N_LABELS = 256, 10  # neither affects what attention costs
REFERENCE = "full"
"""The others are divided by it; it keeps all scores in memory, as was usual when the paper was written."""
_NO_LOOPS = {"self_loops": False}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    REFERENCE: ("full attention, all scores in memory", {"attention": "full"}),
    "full-fused": ("full attention, fused kernel", {"attention": "full"}),
    "linear": ("linear", {"attention": "linear"}),
    "reformer": ("Reformer", {"attention": "reformer"}),
    "performer": ("Performer", {"attention": "performer"}),
    "linformer": ("Linformer", {"attention": "linformer"}),
    "nystromformer": ("Nyströmformer", {"attention": "nystromformer"}),
    "sbm": ("SBM, exact law", {"attention": "sbm"} | _NO_LOOPS),
    "sbm-algorithm-1": ("SBM, Algorithm 1", {"attention": "sbm", "preset": "faithful"} | _NO_LOOPS),
    "random-mask": ("random mask", {"attention": "random_mask"}),
}
"""The rows of the tables: their titles, and the settings of their models."""


def method_of(name: str) -> tuple[str, dict[str, Any]]:
    """The row of a name in :data:`METHODS`, or of an attention that :func:`sbmt.register_attention` was given."""
    registered = {mine: (mine, {"attention": mine}) for mine in ATTENTIONS if mine not in RESERVED}
    return choose("attention", name, registered | METHODS)


@dataclass(frozen=True)
class Column:
    """One input: n tokens, and masks of this density in (0, 1), which attentions without masks ignore.

    The model is that of the paper's Table 7 for the task; that of ``retrieval`` reads two documents.
    """

    title: str
    n: int
    density: float
    task: str = "listops"

    def __post_init__(self) -> None:
        choose("task", self.task, PAPER)
        check_sizes(n=self.n)
        if not 0 < self.density < 1:
            raise SbmtError("density in (0, 1)", self.density, "give the share of the pairs that are edges")


def paper_columns() -> tuple[Column, ...]:
    """The five tasks at their lengths, with the densities of the paper's models."""
    titles = {name: name.capitalize() for name in DENSITIES} | {"listops": "ListOps"}
    return tuple(
        Column(f"{titles[name]} {PAPER[name].length}", PAPER[name].length, density, name)
        for name, density in DENSITIES.items()
    )


def build_model(method: str, column: Column, **settings: Any) -> nn.Module:
    """The model in eval mode and without gradients, with some settings or options of its attention changed."""
    given = {"length": column.n, "mask_density": column.density} | method_of(method)[1] | settings
    names = {field.name for field in fields(LongRangeConfig)}
    mine = {name: value for name, value in given.items() if name in names}
    options = tuple((name, value) for name, value in given.items() if name not in names)
    config = replace(PAPER[column.task], **mine, options=None, option_defaults=options)
    sizes = {name: getattr(config, name) for name in ("d_model", "d_hidden", "n_heads", "n_layers", "attention")}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoder = Encoder(N_IDS, column.n, **sizes, **config.attention_arguments())
        kind = DualEncoder if column.task == "retrieval" else SequenceClassifier
        model = kind(encoder, N_LABELS, config.d_hidden)
    return model.eval().requires_grad_(False)


def cost_report(
    methods: Sequence[str] = (),
    columns: Sequence[Column] = paper_columns(),
    *,
    has_memory: bool = True,
    track: Track = untracked,
) -> dict[str, Any]:
    """Counts operations and measures memory of methods, all if none are named, and of full attention.

    Returns:
        A dictionary for JSON: ``columns``; ``operations``, with ``n_flops`` of the ``attention``
        alone and of the whole ``model`` for each method and column, or ``missing`` with the reason; and ``memory``, see
        :func:`peak_memory`, which takes some seconds per method and works only on Linux.
    """
    names = [name for name in METHODS if not methods or name in (REFERENCE, *methods)]
    names += [name for name in dict.fromkeys(methods) if name not in METHODS]
    result: dict[str, Any] = {"columns": [asdict(column) for column in columns]}
    result["operations"] = {name: [_operations(name, column) for column in columns] for name in names}
    if has_memory:
        result["memory"] = {name: peak_memory(name, columns) for name in track(names, description="memory")}
    return result


def _operations(method: str, column: Column) -> dict[str, Any]:
    model = build_model(method, column)
    if uncounted(model):
        return {"missing": "not counted"}
    count = count_operations(model, column.n, density=column.density)
    both = {"attention": count.attention(), "model": count}
    return {name: {"n_flops": one.n_flops} for name, one in both.items()}


def peak_memory(method: str, columns: Sequence[Column], **settings: Any) -> list[dict[str, Any]]:
    """How much memory one forward pass adds, at its peak, to what the process already holds.

    The batch is one example (a pair of documents for retrieval), in eval mode, without gradients and on one thread. All
    columns share one fresh process. Weights and inputs do not count, outputs do. Numbers vary by a few per cent.

    Returns:
        For each column ``forward`` and ``before`` (what was held) in MiB, and the ``density`` of the masks drawn, None
        if there are none; or ``missing`` with the reason.
    """
    job = [method, [asdict(column) for column in columns], settings]
    found = in_fresh_process("sbmt.experiments.costs", job, STEADY)
    return found if isinstance(found, list) else [found] * len(columns)


def measure_forward(method: str, column: Column, **settings: Any) -> dict[str, Any]:
    """The same for one column in this process, which should be a fresh one."""
    kernels = sdpa_kernel(SDPBackend.MATH) if method == REFERENCE else nullcontext()
    with torch.inference_mode(), kernels:
        for size in (min(128, column.n), column.n):  # the small one loads kernels and starts thread pools
            model = build_model(method, replace(column, n=size), **settings)
            shape = (1, 2, size) if column.task == "retrieval" else (1, size)
            tokens = torch.randint(N_IDS, shape, generator=torch.Generator().manual_seed(0))
            meet_density(model, tokens, column.density)
            before, added, output = peak_of(partial(model, tokens))
        densities = torch.cat([attended.density.flatten() for attended in output.attention])
    draws_mask = method_of(method)[1]["attention"] in ("sbm", "random_mask")
    density = round(float(densities.mean()), 5) if draws_mask else None
    return {"forward": round(added, 2), "before": round(before, 2), "density": density}


def meet_density(model: nn.Module, tokens: Tensor, density: float) -> None:
    """Sets the SBM layers of a fresh model so that each mask has this density in expectation.

    Clusters and nodes are first moved apart, so that memberships vary as much as their mean and the exact sampler
    builds its tables; in a fresh layer they are so alike that it does without, and needs up to a third less memory.
    """

    def spread(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(layer, SBMAttention)
        *_, last = (module for module in layer.node_mlp if isinstance(module, nn.Linear))
        layer.clusters.mul_(5.0)
        last.weight.mul_(10.0)
        shift_to_density(layer, inputs[0], inputs[1], density, component=1.0)

    layers = [layer for layer in model.modules() if isinstance(layer, SBMAttention)]
    hooks = [layer.register_forward_pre_hook(spread) for layer in layers]
    if hooks:
        model(tokens)
    for hook in hooks:
        hook.remove()


def cost_tables(report: dict[str, Any]) -> list[Table]:
    """FLOPs and peak memory relative to full attention, from :func:`cost_report`."""
    titles = {name: method_of(name)[0] for name in report["operations"]}
    counted = {name: mine for name, mine in report["operations"].items() if name != "full-fused"}
    short = titles | {REFERENCE: "full attention"}  # the same operations whether or not scores are kept
    tables = []
    for kind, title in (("attention", "FLOPs of the attention alone"), ("model", "FLOPs of the whole model")):
        numbers = {name: [one.get(kind, {}).get("n_flops") for one in mine] for name, mine in counted.items()}
        tables.append(_relative(f"flops-{kind}", title, report["columns"], short, counted, numbers))
    if memory := report.get("memory"):
        numbers = {name: [one.get("forward") for one in mine] for name, mine in memory.items()}
        title = "Peak memory of a forward pass"
        tables.append(_relative("memory", title, report["columns"], titles, memory, numbers))
    return tables


def _relative(
    name: str, title: str, columns: list[Any], titles: dict[str, str], found: dict[str, Any], numbers: dict[str, Any]
) -> Table:
    """Numbers per method and column, divided by those of full attention."""
    headings = ("", *(f"{column['title']}, {100 * column['density']:.3g} %" for column in columns))
    rows = []
    for method, mine in numbers.items():
        both = zip(mine, numbers[REFERENCE], strict=True)
        cells = (f"{x / whole:.2f}" if whole and x is not None else LEFT_OUT for x, whole in both)
        rows.append((titles[method], *cells))
    missing = (f"{titles[x]}: {one['missing']}" for x, mine in found.items() for one in mine if "missing" in one)
    return Table(name, f"{title}, full attention = 1", headings, tuple(rows), tuple(dict.fromkeys(missing)))


if __name__ == "__main__":
    load_plugins()
    torch.set_num_threads(1)
    asked, inputs, changed = json.loads(sys.argv[1])
    print(json.dumps([measure_forward(asked, Column(**one), **changed) for one in inputs]))
