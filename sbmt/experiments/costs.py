"""Operations and memory of the attentions in the models of the paper, as its Table 3 has them.

``python -m sbmt.experiments.costs CASES`` is what measures memory in a process of its own.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from sbmt.cost import count_operations, uncounted
from sbmt.errors import SbmtError, check_sizes, choose
from sbmt.experiments.memory import STEADY, in_fresh_process, peak_of
from sbmt.experiments.progress import Track, untracked
from sbmt.experiments.tables import LEFT_OUT, Table
from sbmt.experiments.training.tasks import PAPER, LongRangeConfig
from sbmt.layers import SBMAttention
from sbmt.layers.registry import ATTENTIONS, RESERVED
from sbmt.models import DualEncoder, Encoder, SequenceClassifier
from sbmt.registration import load_plugins

TASKS = ("listops", "text", "retrieval", "image", "pathfinder")
DENSITIES = dict(zip(TASKS, (0.0115, 0.1062, 0.0249, 0.0133, 0.0261), strict=True))
"""Densities of the paper's models trained with λ = 1e-1 (Table 2), the models that its Table 3 describes."""
N_IDS, N_LABELS = 256, 10  # neither affects what attention costs
REFERENCE = "full"
"""The others are divided by it; it keeps all scores in memory, as was usual when the paper was written."""


@dataclass(frozen=True)
class Method:
    """One row of the tables: its title, what attends, and whether the density of its masks can be chosen."""

    title: str
    attention: str
    options: Mapping[str, Any] = field(default_factory=dict)
    draws_mask: bool = False


_NO_LOOPS = {"self_loops": False}
METHODS = {
    REFERENCE: Method("full attention, all scores in memory", "full"),
    "full-fused": Method("full attention, fused kernel", "full"),
    "linear": Method("linear", "linear"),
    "reformer": Method("Reformer", "reformer"),
    "routing": Method("Routing Transformer", "routing"),
    "performer": Method("Performer", "performer"),
    "linformer": Method("Linformer", "linformer"),
    "nystromformer": Method("Nyströmformer", "nystromformer"),
    "sbm": Method("SBM, exact law", "sbm", _NO_LOOPS, True),
    "sbm-algorithm-1": Method("SBM, Algorithm 1", "sbm", {"preset": "faithful"} | _NO_LOOPS, True),
    "sbm-static": Method("SBM of positions alone", "sbm_static", _NO_LOOPS, True),
    "random-mask": Method("random mask", "random_mask", draws_mask=True),
}


def method_of(name: str) -> Method:
    """The row of a name in :data:`METHODS`, or of an attention that :func:`sbmt.register_attention` was given."""
    registered = {mine: Method(mine, mine) for mine in ATTENTIONS if mine not in RESERVED}
    return choose("attention", name, registered | METHODS)


@dataclass(frozen=True)
class Case:
    """One model on one input: n tokens, and masks of this density in (0, 1), which attentions without masks ignore.

    The model is that of the paper's Table 7 for the task (that of ``retrieval`` reads two documents), with ``settings``
    changed: fields of its configuration, or options of attentions.

    Raises:
        SbmtError: On an unknown method or task, a length below 1, or a density outside (0, 1).
    """

    method: str
    n: int
    density: float
    task: str = "listops"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        method_of(self.method)
        choose("task", self.task, PAPER)
        check_sizes(n=self.n)
        if not 0 < self.density < 1:
            raise SbmtError("density in (0, 1)", self.density, "give the share of the pairs that are edges")

    @property
    def config(self) -> LongRangeConfig:
        """All settings of the model."""
        method = method_of(self.method)
        given = {"length": self.n, "mask_density": self.density, "attention": method.attention, **method.options}
        given |= self.settings
        names = {f.name for f in fields(LongRangeConfig)}
        mine = {name: value for name, value in given.items() if name in names}
        options = tuple((name, value) for name, value in given.items() if name not in names)
        return replace(PAPER[self.task], **mine, options=None, option_defaults=options)


def build_case(case: Case, seed: int = 0) -> nn.Module:
    """The model of a case, in eval mode and without gradients; torch's own generator is left alone."""
    config = case.config
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = Encoder(
            N_IDS,
            case.n,
            d_model=config.d_model,
            d_hidden=config.d_hidden,
            n_heads=config.n_heads,
            n_layers=config.n_layers,
            attention=config.attention,
            **config.attention_arguments(),
        )
        kind = DualEncoder if case.task == "retrieval" else SequenceClassifier
        model = kind(encoder, N_LABELS, config.d_hidden)
    return model.eval().requires_grad_(False)


def sample_tokens(case: Case, seed: int = 0) -> Tensor:
    """A batch of one example for the model of a case, without padding."""
    shape = (1, 2, case.n) if case.task == "retrieval" else (1, case.n)
    return torch.randint(N_IDS, shape, generator=torch.Generator().manual_seed(seed))


@dataclass(frozen=True)
class Column:
    """An input on which attentions are compared: see :class:`Case`."""

    title: str
    n: int
    density: float
    task: str = "listops"


def paper_columns() -> tuple[Column, ...]:
    """The five tasks at their lengths, with the densities of the paper's models."""
    titles = {name: name.capitalize() for name in TASKS} | {"listops": "ListOps"}
    return tuple(
        Column(f"{titles[name]} {PAPER[name].length}", PAPER[name].length, density, name)
        for name, density in DENSITIES.items()
    )


def cost_report(
    methods: Sequence[str] = (),
    columns: Sequence[Column] = paper_columns(),
    *,
    has_memory: bool = True,
    track: Track = untracked,
) -> dict[str, Any]:
    """Counts operations and measures memory.

    Args:
        methods: Names in :data:`METHODS`, or of registered attentions; all of the former if empty. Full attention is
            always included.
        columns: Inputs.
        has_memory: Whether to measure memory, which takes some seconds per method and works only on Linux.
        track: Shows the progress of measuring memory, such as the method ``track`` of rich's ``Progress``.

    Returns:
        A dictionary for JSON: ``columns``; ``operations``, with ``n_flops`` and ``n_elementwise`` of the ``attention``
        alone and of the whole ``model`` for each method and column, or ``missing`` with the reason; and ``memory``, see
        :func:`peak_memory`.

    Raises:
        SbmtError: On unknown methods.
    """
    names = [name for name in METHODS if not methods or name in (REFERENCE, *methods)]
    names += [name for name in dict.fromkeys(methods) if name not in METHODS]
    cases = {name: [Case(name, c.n, c.density, c.task) for c in columns] for name in names}
    result: dict[str, Any] = {"columns": [asdict(column) for column in columns]}
    result["operations"] = {name: [_operations(case) for case in mine] for name, mine in cases.items()}
    if has_memory:
        result["memory"] = {name: peak_memory(cases[name]) for name in track(names, description="memory")}
    return result


def _operations(case: Case) -> dict[str, Any]:
    model = build_case(case)
    if uncounted(model):
        return {"missing": "not counted"}
    count = count_operations(model, case.n, density=case.density)
    both = {"attention": count.attention(), "model": count}
    return {name: {"n_flops": one.n_flops, "n_elementwise": one.n_elementwise} for name, one in both.items()}


def peak_memory(cases: Sequence[Case]) -> list[dict[str, Any]]:
    """How much memory one forward pass of each case adds, at its peak, to what the process already holds.

    The batch is one example (a pair of documents for retrieval), in eval mode, without gradients and on one thread. All
    cases share one fresh process. Weights and inputs do not count, outputs do. Numbers vary by a few per cent.

    Returns:
        For each case ``forward`` and ``before`` (what was held) in MiB, and the ``density`` of the masks drawn, None if
        there are none; or ``missing`` with the reason.
    """
    found = in_fresh_process("sbmt.experiments.costs", [asdict(case) for case in cases], STEADY)
    return found if isinstance(found, list) else [found] * len(cases)


def measure_forward(case: Case) -> dict[str, Any]:
    """The same for one case in this process, which should be a fresh one."""
    kernels = sdpa_kernel(SDPBackend.MATH) if case.method == REFERENCE else nullcontext()
    with torch.inference_mode(), kernels:
        for size in (min(128, case.n), case.n):  # the small one loads kernels and starts thread pools
            mine = replace(case, n=size)
            model, tokens = build_case(mine), sample_tokens(mine)
            meet_density(model, tokens, case.density)
            before, added, output = peak_of(partial(model, tokens))
        densities = torch.cat([attended.density.flatten() for attended in output.attention])
    density = round(float(densities.mean()), 5) if method_of(case.method).draws_mask else None
    return {"forward": round(added, 2), "before": round(before, 2), "density": density}


def meet_density(model: nn.Module, tokens: Tensor, density: float) -> None:
    """Sets the SBM layers of a fresh model so that each mask has this density in expectation.

    Clusters and nodes are first moved apart, so that memberships vary as much as their mean and the exact sampler
    builds its tables; in a fresh layer they are so alike that it does without, and needs up to a third less memory.
    Then all clusters of a head get the same component along one direction, and bisection finds how far to move the
    MLP's last bias, and with it all memberships, along that direction. Other attentions are not changed.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, SBMAttention)]
    hooks = [layer.register_forward_pre_hook(partial(_shift, density=density)) for layer in layers]
    if hooks:
        model(tokens)
    for hook in hooks:
        hook.remove()


def _shift(layer: nn.Module, inputs: tuple[Tensor, ...], density: float) -> None:
    assert isinstance(layer, SBMAttention)
    last = layer.node_mlp[-1]
    assert isinstance(last, nn.Linear)
    layer.clusters.mul_(5.0)
    last.weight.mul_(10.0)
    direction = torch.full((layer.clusters.shape[-1],), layer.clusters.shape[-1] ** -0.5)
    layer.clusters.sub_((layer.clusters @ direction - 1.0)[..., None] * direction)
    start = last.bias.clone()
    low, high = -40.0, 40.0
    for _ in range(40):
        middle = (low + high) / 2
        last.bias.copy_(start + middle * direction)
        mean = float(layer.block_model(*inputs[:2]).expected_density().mean())
        low, high = (middle, high) if mean < density else (low, middle)


def cost_tables(report: dict[str, Any]) -> list[Table]:
    """FLOPs and peak memory relative to full attention, from :func:`cost_report`."""
    operations = {short_title(name): mine for name, mine in report["operations"].items() if name != "full-fused"}
    tables = []
    for kind, title in (("attention", "FLOPs of the attention alone"), ("model", "FLOPs of the whole model")):
        numbers = {name: [one.get(kind, {}).get("n_flops") for one in mine] for name, mine in operations.items()}
        tables.append(_relative(f"flops-{kind}", title, report, operations, numbers))
    if "memory" in report:
        measured = {method_of(name).title: mine for name, mine in report["memory"].items()}
        numbers = {name: [one.get("forward") for one in mine] for name, mine in measured.items()}
        tables.append(_relative("memory", "Peak memory of a forward pass", report, measured, numbers))
    return tables


def short_title(method: str) -> str:
    """A method's title where only operations matter: they are the same whether or not scores are kept."""
    return "full attention" if method == REFERENCE else method_of(method).title


def _relative(
    name: str, title: str, report: dict[str, Any], found: dict[str, Any], numbers: dict[str, list[Any]]
) -> Table:
    """Numbers per method and column, divided by those of full attention, which is the first row."""
    headings = ("", *(f"{column['title']}, {100 * column['density']:.3g} %" for column in report["columns"]))
    full = next(iter(numbers.values()))
    rows = [
        (
            row,
            *(f"{x / whole:.2f}" if whole and x is not None else LEFT_OUT for x, whole in zip(mine, full, strict=True)),
        )
        for row, mine in numbers.items()
    ]
    missing = (f"{row}: {one['missing']}" for row, mine in found.items() for one in mine if "missing" in one)
    return Table(name, f"{title}, full attention = 1", headings, tuple(rows), tuple(dict.fromkeys(missing)))


if __name__ == "__main__":
    load_plugins()
    torch.set_num_threads(1)
    print(json.dumps([measure_forward(Case(**asked)) for asked in json.loads(sys.argv[1])]))
