"""The attentions that are compared, each in the models of the paper."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from sbmt.errors import SbmtError, check_sizes, choose
from sbmt.experiments.training.tasks import PAPER, LongRangeConfig
from sbmt.layers.registry import ATTENTIONS, RESERVED
from sbmt.models import DualEncoder, Encoder, SequenceClassifier

N_IDS, N_LABELS = 256, 10  # neither affects what attention costs


@dataclass(frozen=True)
class Method:
    """One row of the tables.

    Attributes:
        title: Name of the row.
        settings: Fields of :class:`~sbmt.experiments.training.tasks.LongRangeConfig`.
        is_fused: Whether torch's fused kernel may be used. Without it all scores are kept in memory, as was usual when
            the paper was written.
        draws_mask: Whether the density of its masks can be chosen.
    """

    title: str
    settings: Mapping[str, Any]
    is_fused: bool = True
    draws_mask: bool = False


REFERENCE = "full"
METHODS = {
    REFERENCE: Method("full attention, all scores in memory", {"attention": "full"}, is_fused=False),
    "full-fused": Method("full attention, fused kernel", {"attention": "full"}),
    "linear": Method("linear", {"attention": "linear"}),
    "reformer": Method("Reformer", {"attention": "reformer"}),
    "routing": Method("Routing Transformer", {"attention": "routing"}),
    "performer": Method("Performer", {"attention": "performer"}),
    "linformer": Method("Linformer", {"attention": "linformer"}),
    "nystromformer": Method("Nyströmformer", {"attention": "nystromformer"}),
    "sbm": Method("SBM, exact law", {"attention": "sbm", "self_loops": False}, draws_mask=True),
    "sbm-algorithm-1": Method(
        "SBM, Algorithm 1", {"attention": "sbm", "preset": "faithful", "self_loops": False}, draws_mask=True
    ),
    "sbm-static": Method("SBM of positions alone", {"attention": "sbm_static", "self_loops": False}, draws_mask=True),
    "random-mask": Method("random mask", {"attention": "random_mask"}, draws_mask=True),
}
"""The others are divided by ``full``; with a fused kernel, full attention never holds n² numbers."""


def method_of(name: str) -> Method:
    """The row of a name in :data:`METHODS`, or of an attention that :func:`sbmt.register_attention` was given."""
    registered = {mine: Method(mine, {"attention": mine}) for mine in ATTENTIONS if mine not in RESERVED}
    return choose("attention", name, registered | METHODS)


@dataclass(frozen=True)
class Case:
    """One model on one input.

    Attributes:
        method: A name in :data:`METHODS`, or that of a registered attention.
        n: Tokens per sequence.
        density: Density of the masks, in (0, 1); ignored by attentions that draw none.
        task: The task whose model it is; the model of ``retrieval`` reads two documents.
        settings: Further settings of :class:`~sbmt.experiments.training.tasks.LongRangeConfig`, and options
            of attentions, which those without them ignore.

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
        """All settings of the model: those of the paper's Table 7 unless the case says otherwise."""
        settings = method_of(self.method).settings
        given = {"length": self.n, "mask_density": self.density, **settings, **self.settings}
        names = {f.name for f in fields(LongRangeConfig)}
        mine = {name: value for name, value in given.items() if name in names}
        options = tuple((name, value) for name, value in given.items() if name not in names)
        return replace(PAPER[self.task], **mine, options=None, option_defaults=options)

    @property
    def draws_mask(self) -> bool:
        """Whether the density matters."""
        return method_of(self.method).draws_mask

    def to_dict(self) -> dict[str, Any]:
        """The fields as a dictionary that JSON can hold."""
        return asdict(self)


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
