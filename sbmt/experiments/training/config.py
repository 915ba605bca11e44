"""Settings of a training run, and what its task decides: model, data, loss, optimiser, masks, scores."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn

from sbmt.block_model.fit import DensityKind
from sbmt.errors import SbmtError, check_choice, check_seed, check_sizes
from sbmt.experiments.data.prepared import Prepared
from sbmt.experiments.data.tokenizer import Tokenizer
from sbmt.experiments.training.data import TaskData
from sbmt.experiments.training.masks import MasksByNumber, MaskSource
from sbmt.layers import SBMAttention
from sbmt.layers.registry import ATTENTIONS, PRESETS, arguments_of, make_options, options_of, parameters_of
from sbmt.models import Encoder
from sbmt.models.encoder import Positions
from sbmt.registration import option

if TYPE_CHECKING:
    from torchmetrics import Metric

Precision = Literal["32-true", "bf16-mixed", "16-mixed"]
BETAS = 0.9, 0.99
"""Of Adam, for block models that have a learning rate of their own."""
FIT_RATE = 3.0
"""The learning rate of block models that learn by likelihood, in multiples of the network's."""
ROWS = 200
"""Rows of training in the table of metrics, unless the task wants one for every step."""

Config = TypeVar("Config", bound="TrainingConfig")
UNSAVED = "option_defaults"
GONE = ("is_diagonal", "n_active", "shared_graph")
"""Options of earlier versions, which are left out of a configuration if they were not in use."""


def family_defaults(**values: Any) -> Any:
    """A field: where a family of runs starts the options of these names, whichever attention has them."""
    help_ = "where options of these names start, whichever attention has them; not saved"
    return field(default=tuple(values.items()), compare=False, repr=False, metadata={"help": help_})


def is_finite(value: Any) -> bool:
    """Whether a value is a finite number of Python's own, as JSON holds it."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


def is_count(value: Any) -> bool:
    """Whether a value is an integer of at least 0."""
    return isinstance(value, int) and is_finite(value) and value >= 0


@dataclass(frozen=True)
class TrainingConfig(ABC):
    """Everything that decides a run, apart from data, versions and hardware.

    The fields are the settings that a user chooses; the command line offers each of them, and every option of the
    attention, by name. Options may be given as a mapping of those that differ from the defaults. The methods are what
    the task decides; a new task is a subclass that overrides those in which it differs.

    Raises:
        SbmtError: If a value is out of range, or an option is not one of the attention's.
    """

    attention: str = option("sbm", "name of the attention", ATTENTIONS)
    options: Any = field(default=None, metadata={"help": "the attention's own options; None: its defaults"})
    option_defaults: tuple[tuple[str, Any], ...] = family_defaults()
    positions: Positions = option("learned", "positions of tokens: learned, rotary or none")
    has_tied_start: bool = option(False, "start the key projection as a copy of the query projection")
    density_weight: float = option(0.0, "λ, weight of the mean density in the loss")
    density_kind: Literal["sampled", "expected"] = option("sampled", "density in the loss: sampled or expected")
    density_start: int = option(0, "step after which the density counts")
    density_ramp: int = option(0, "steps over which λ then grows to its full size")
    length: int = option(64, "tokens per sequence, and number of values")
    batch_size: int = option(64, "sequences per step")
    steps: int = option(1000, "optimiser steps")
    learning_rate: float = option(1e-3, "Adam's learning rate")
    block_model_rate: float | None = option(
        None, "learning rate of SBM attentions; None: the network's, tripled for likelihood"
    )
    auxiliary_weight: float = option(1.0, "weight of the loss by which block models learn from likelihood")
    dense_steps: int = option(0, "with likelihood: steps at the start that attend all pairs, before masks are drawn")
    edges_from: float | None = option(None, "with likelihood: edges per query at the first step, if --edges-ramp")
    edges_ramp: int = option(0, "steps over which edges per query go from there to --edges-per-query, geometrically")
    d_model: int = option(32, "width")
    d_hidden: int = option(32, "width inside the MLPs")
    n_heads: int = option(1, "heads per layer")
    n_layers: int = option(1, "layers")
    embedding_std: float = option(1.0, "standard deviation of token embeddings at the start")
    seed: int = option(0, "seed of weights, data and masks")
    task: str = option("", "name of the task")
    accumulate: int = option(1, "parts that a batch is computed in, to save memory")
    precision: Precision = option("32-true", "32-true, bf16-mixed or 16-mixed")

    accelerator = "auto"
    """What ``auto`` means: whatever Lightning finds, or ``cpu``."""

    has_dev = True
    """Whether dev examples choose the weights that are kept; otherwise the last ones are."""

    best_by: ClassVar[Literal["accuracy", "loss"]] = "accuracy"
    """Which score on dev decides which weights are kept."""

    score_type = torch.float32
    """The type in which the scores of batches are added up."""

    evaluation_batch = 16
    """Examples per batch of :func:`~sbmt.experiments.training.evaluate.evaluate`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", self._make_options())
        names = ("length", "batch_size", "steps", "d_model", "d_hidden", "n_heads", "n_layers", "accumulate")
        check_sizes(**{name: getattr(self, name) for name in names})
        for name in ("learning_rate", "embedding_std", "block_model_rate"):
            value = getattr(self, name)
            if not (name == "block_model_rate" if value is None else is_finite(value) and value > 0):
                raise SbmtError(f"{name} > 0", value, "give a positive number")
        for name in ("density_weight", "auxiliary_weight"):
            if not (is_finite(getattr(self, name)) and getattr(self, name) >= 0):
                raise SbmtError(f"{name} ≥ 0", getattr(self, name), "0 switches it off")
        self._check_steps("density_start", "density_ramp", "dense_steps", "edges_ramp")
        self._check_fit()
        check_choice("positions", self.positions, Positions)
        check_choice("density_kind", self.density_kind, DensityKind)
        check_choice("precision", self.precision, Precision)
        check_seed(self.seed)
        if self.batch_size % self.accumulate:
            raise SbmtError(f"accumulate that divides a batch of {self.batch_size}", self.accumulate, "change one")

    def _check_steps(self, *names: str) -> None:
        for name in names:
            if not is_count(getattr(self, name)):
                raise SbmtError(f"{name} ≥ 0", getattr(self, name), "give a number of steps")

    def _check_fit(self) -> None:
        """Raises SbmtError unless warm-up and course of c are whole, and the block model learns by likelihood."""
        if self.edges_from is not None and not (is_finite(self.edges_from) and self.edges_from > 0):
            raise SbmtError("edges_from > 0", self.edges_from, "give a number of edges")
        if (self.edges_from is None) != (self.edges_ramp == 0):
            got = f"edges_from={self.edges_from} and edges_ramp={self.edges_ramp}"
            raise SbmtError("edges_from and edges_ramp together", got, "give both or neither")
        settings = arguments_of(self.options)
        learning = (PRESETS.get(settings.get("preset", ""), {}) | settings).get("learning")
        if learning != "likelihood" and (self.dense_steps or self.edges_ramp):
            expected = f"learning by likelihood with {'dense_steps' if self.dense_steps else 'edges_ramp'}"
            raise SbmtError(expected, f"another attention ({self.attention})", "name preset='fitted', or leave it out")
        if learning == "likelihood" and self.density_weight:
            do = "lower edges_per_query, which decides how dense such masks are"
            raise SbmtError("density_weight = 0 with learning by likelihood", self.density_weight, do)

    def _make_options(self) -> Any:
        kind: Any = options_of(self.attention)
        if isinstance(self.options, kind):
            return make_options(self.attention, asdict(self.options))
        if not isinstance(self.options, Mapping | None):
            do = "give names and values, or change the attention with override()"
            raise SbmtError(f"a mapping or a {kind.__name__} as options", type(self.options).__name__, do)
        names = {f.name for f in fields(kind)}
        start = {name: value for name, value in self.option_defaults if name in names}
        return make_options(self.attention, start | dict(self.options or {}))

    def attention_arguments(self) -> dict[str, Any]:
        """Arguments for :func:`~sbmt.layers.build_attention`, besides sizes and dropout.

        They are the attention's options, and ``n_positions`` where its constructor takes that: the length of the task.
        """
        arguments = arguments_of(self.options)
        if "n_positions" in parameters_of(ATTENTIONS[self.attention]):
            arguments.setdefault("n_positions", self.length)
        return arguments

    def to_dict(self) -> dict[str, Any]:
        """The fields as a dictionary that JSON holds."""
        values = asdict(self)
        del values[UNSAVED]
        return values

    @classmethod
    def from_dict(cls: type[Config], values: dict[str, Any]) -> Config:
        """The configuration that :meth:`to_dict` wrote.

        Raises:
            SbmtError: If a field is unknown or a value is out of range.
        """
        known = {f.name for f in fields(cls)} - {UNSAVED}
        if not isinstance(values, dict) or set(values) - known:
            unknown = sorted(set(values) - known) if isinstance(values, dict) else type(values).__name__
            raise SbmtError(f"fields of {cls.__name__}", unknown, "write the configuration with this version")
        if isinstance(options := values.get("options"), dict):
            used = {name: x for name, x in options.items() if name not in GONE or not (x is None or x is False)}
            values = values | {"options": used}
        try:
            return cls(**values)
        except TypeError as error:
            raise SbmtError("numbers and names in the configuration", str(error), "mend or remake the file") from error

    def override(self: Config, **values: Any) -> Config:
        """A copy with those fields and options changed whose value is not None.

        A new attention starts with the values of those options that the present one has too, and its defaults for the
        rest.

        Raises:
            SbmtError: If a value is out of range, or a name is neither a field nor one of the attention's options.
        """
        given = {name: value for name, value in values.items() if value is not None}
        known = {f.name for f in fields(self)}
        changed = {name: value for name, value in given.items() if name in known}
        attention = changed.get("attention", self.attention)
        kept = {f.name for f in fields(options_of(attention))}
        present = {name: value for name, value in asdict(self.options).items() if name in kept}
        changed.setdefault("options", present | {name: value for name, value in given.items() if name not in known})
        return replace(self, **changed)

    @property
    def is_image(self) -> bool:
        """Whether tokens are pixels."""
        return False

    # Model

    @abstractmethod
    def make_model(self, info: dict[str, Any]) -> nn.Module:
        """The model, with weights drawn from torch's global generator; see :func:`build_model`."""

    def make_encoder(self, vocab_size: int | None, max_length: int | None, **arguments: Any) -> Encoder:
        """An encoder with the network and the attention of the configuration."""
        return Encoder(
            vocab_size,
            self.length if self.positions == "learned" else max_length,
            d_model=self.d_model,
            d_hidden=self.d_hidden,
            n_heads=self.n_heads,
            n_layers=self.n_layers,
            embedding_std=self.embedding_std,
            positions=self.positions,
            attention=self.attention,
            has_tied_start=self.has_tied_start,
            **arguments,
            **self.attention_arguments(),
        )

    def start_from(self, model: nn.Module) -> dict[str, Any]:
        """Gives a new model the weights that training starts from, if there are any; returns what results say of it."""
        return {}

    # Data

    @abstractmethod
    def open_data(
        self, tokenizer: Tokenizer | None = None, prepared: Prepared | None = None, test_seed: int = 0
    ) -> TaskData:
        """Opens what a run reads.

        Args:
            tokenizer: That of a finished run; None finds the one that a new run takes.
            prepared: The examples; None opens those that the configuration names.
            test_seed: Seed of test examples that are generated; prepared ones do not depend on it.

        Raises:
            SbmtError: If examples or tokeniser are missing, damaged, or another task's.
        """

    # Optimisation

    @abstractmethod
    def loss(self, logits: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
        """The loss in nats, without the penalty on density: its mean, or with ``"none"`` that of every label."""

    def predict(self, logits: Tensor) -> Tensor:
        """The likeliest labels."""
        return logits.argmax(-1)

    @abstractmethod
    def make_optimizer(self, parameters: Iterable[dict[str, Any]]) -> torch.optim.Optimizer:
        """The optimiser of groups of parameters, with the largest learning rate where a group has none of its own."""

    def parameter_groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """The parameters of a model; those of SBM attentions apart if they have a learning rate of their own.

        Without ``block_model_rate``, those that learn by likelihood take larger steps than the network.

        Rates of block models are exponentials, so now and then a gradient is far larger than usual. Adam would hardly
        move for a thousand steps after it; there it remembers squares for a hundred.
        """
        layers = [x for x in model.modules() if isinstance(x, SBMAttention)]
        rate = self.block_model_rate
        if rate is None:
            layers = [layer for layer in layers if layer.learning == "likelihood"]
            rate = FIT_RATE * self.learning_rate
        apart = {id(p): p for layer in layers for p in layer.parameters()}
        groups: list[dict[str, Any]] = [{"params": [p for p in model.parameters() if id(p) not in apart]}]
        return [*groups, {"params": list(apart.values()), "lr": rate, "betas": BETAS}] if apart else groups

    @abstractmethod
    def learning_rate_share(self, step: int) -> float:
        """The learning rate at a step (from 0) as a share of the largest."""

    # Randomness

    def make_masks(self) -> MaskSource:
        """The generators that masks are drawn from."""
        return MasksByNumber(self.seed)

    @property
    def has_dropout(self) -> bool:
        """Whether training draws from torch's global generator."""
        return False

    def evaluation_seed(self, seed: int) -> int:
        """The seed of the masks of :func:`~sbmt.experiments.training.evaluate.evaluate`."""
        return seed

    # Evaluation

    @property
    def checkpoint_every(self) -> int:
        """Steps between two checkpoints; on tasks with dev examples, also between two evaluations."""
        raise NotImplementedError

    @property
    def row_every(self) -> int:
        """Steps that a row of the table of metrics averages."""
        return max(1, self.steps // ROWS)

    def n_examples(self, split: str) -> int | None:
        """Examples of an evaluation on ``dev`` or on a split that is tested; None takes all."""
        return None

    def test_batch_size(self, batch_size: int) -> int:
        """Examples per batch of an evaluation, given those of a step of training."""
        return batch_size

    def make_metrics(self, n_classes: int) -> "dict[str, Metric]":
        """Metrics beside loss and accuracy, each to be updated with ``(predictions, labels)``."""
        return {}

    def metrics_of(self, loss: float) -> dict[str, float]:
        """What a mean loss says in other words."""
        return {}

    def baselines(self, data: TaskData, name: str, test: Any) -> dict[str, Any]:
        """What to compare the scores on a test split with."""
        return {}


def build_model(config: TrainingConfig, info: dict[str, Any] | None = None) -> Any:
    """The model of a configuration, with weights drawn from its seed; torch's global generator is left as it was.

    Args:
        config: What to build.
        info: What the model must know of the examples: ``vocab_size``, ``class_names``, ``n_documents``. Repeated
            tokens need none.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return config.make_model(info or {})
