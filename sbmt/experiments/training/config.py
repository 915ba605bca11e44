"""The configuration of a training run, which also defines the model, data, loss, optimiser and scores of its task."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

import torch
from torch import Tensor, nn

from sbmt.block_model.fit import DensityKind
from sbmt.errors import SbmtError, check_choice, check_seed, choose, describe
from sbmt.experiments.data.tokenizer import Tokenizer
from sbmt.experiments.training.data import TaskData
from sbmt.layers import SBMAttention
from sbmt.layers.registry import ATTENTIONS, PRESETS, arguments_of, make_options, option, options_of, parameters_of
from sbmt.models import Encoder
from sbmt.models.encoder import Positions

MOST_BYTES = 1 << 36  # maximum size of a network's weights
BETAS = 0.9, 0.99  # Adam's betas for block models with a separate learning rate
FIT_RATE = 3.0  # learning rate of block models trained by likelihood, relative to the network's
CAUSAL: dict[str, Any] = {"positions": "rotary", "option_defaults": (("causal", True),)}  # defaults of language models
MAY_BE_0 = ("weight_decay", "warmup_steps", "n_distractors", "dropout", "attention_dropout")  # besides defaults of 0
Config = TypeVar("Config", bound="TrainingConfig")
CONFIGS: dict[str, type["TrainingConfig"]] = {}
"""Maps each task to its configuration class. A class that names its ``tasks`` is registered when it is defined."""


@dataclass(frozen=True)
class TrainingConfig(ABC):
    """All settings that determine a run, apart from data, versions and hardware.

    The command line offers every field defined by ``option``, and every option of the attention mechanism. ``options``
    may be a mapping with only the values that differ from the defaults. To add a task, subclass ``GeneratedConfig`` or
    ``PreparedConfig``, and pass ``tasks`` (the task names) and changed defaults as keywords of the class statement.
    """

    attention: str = option("sbm", "name of the attention mechanism", ATTENTIONS)
    options: Any = None  # options of the attention mechanism; None for its defaults
    option_defaults: tuple[tuple[str, Any], ...] = field(default=(), compare=False, repr=False)  # not saved
    positions: Positions = option("learned", "position encoding: learned, rotary or none")
    has_tied_start: bool = option(False, "start the key projection as a copy of the query projection")
    density_weight: float = option(0.0, "λ, weight of the mean density in the loss")
    density_kind: DensityKind = option("sampled", "kind of density in the loss: sampled or expected")
    length: int = option(64, "tokens per sequence, and number of distinct values")
    batch_size: int = option(64, "sequences per step")
    steps: int = option(1000, "number of optimiser steps")
    learning_rate: float = option(1e-3, "Adam's learning rate")
    block_model_rate: float | None = option(None, "SBM layers' rate; by default the network's, tripled for likelihood")
    d_model: int = option(32, "width of the model")
    d_hidden: int = option(32, "hidden width of the MLPs")
    n_heads: int = option(1, "number of heads per layer")
    n_layers: int = option(1, "number of layers")
    embedding_std: float = option(1.0, "initial standard deviation of token embeddings")
    seed: int = option(0, "random seed of weights, data and masks")
    task: str = ""
    accumulate: int = option(1, "number of parts into which a batch is split to save memory")
    precision: Literal["32-true", "bf16-mixed"] = option("32-true", "floating-point precision: 32-true or bf16-mixed")

    tasks: ClassVar[tuple[str, ...]] = ()
    is_generated: ClassVar[bool] = False  # whether sequences are generated; if so, there is no dev split
    is_image: ClassVar[bool] = False  # whether tokens are pixels
    best_by: ClassVar[Literal["accuracy", "loss"]] = "accuracy"  # dev score that selects the weights to keep
    evaluation_batch: ClassVar[int] = 16  # examples per batch of evaluate()
    checkpoint_every: ClassVar[int] = 200  # steps between checkpoints, and between evaluations on dev if there is one

    def __init_subclass__(cls, tasks: tuple[str, ...] = (), **defaults: Any) -> None:
        CONFIGS.update(dict.fromkeys(tasks, cls))
        if tasks:
            cls.tasks, defaults["task"] = tasks, tasks[0]
        for f in fields(cls):
            if f.name in defaults:
                cls.__annotations__[f.name] = f.type
                start = field(default=defaults.pop(f.name), compare=f.compare, repr=f.repr, metadata=f.metadata)
                setattr(cls, f.name, start)
        super().__init_subclass__(**defaults)  # rejects unknown keywords

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", self._make_options())
        self._check_fields()
        choose("task", self.task, dict.fromkeys(self.tasks))
        if self.batch_size % self.accumulate:
            raise SbmtError(f"accumulate to divide batch_size = {self.batch_size}", self.accumulate, "choose a divisor")
        settings = arguments_of(self.options)
        learning = (PRESETS.get(settings.get("preset", ""), {}) | settings).get("learning")
        if learning == "likelihood" and self.density_weight:
            raise SbmtError("density_weight = 0 with likelihood", self.density_weight, "reduce edges_per_query instead")

    def _check_fields(self) -> None:
        """Raises SbmtError unless every field has a value of its type. Numbers must be positive; a few may be 0."""
        check_seed(self.seed)
        hints = get_type_hints(type(self))
        for f in fields(self):
            value, kinds = getattr(self, f.name), get_args(hints[f.name]) or (hints[f.name],)
            if get_origin(hints[f.name]) is Literal:
                check_choice(f.name, value, hints[f.name])
            elif f.name in ("seed", "options", "option_defaults") or (value is None and type(None) in kinds):
                continue
            elif type(value) not in kinds and not (type(value) is int and float in kinds):
                raise SbmtError(f"{f.name} of type {kinds[0].__name__}", describe(value), "give a value of this type")
            elif not isinstance(value, bool | str):
                may_be_0 = f.default == 0 or f.name in MAY_BE_0
                if not 0 <= value <= sys.float_info.max or (value == 0 and not may_be_0):
                    raise SbmtError(f"{f.name} {'≥' if may_be_0 else '>'} 0", value, "choose another value")
                if isinstance(value, int) and value >= 1 << 31:
                    raise SbmtError(f"{f.name} < 2³¹", value, "choose a smaller value")

    def _make_options(self) -> Any:
        kind: Any = options_of(self.attention)
        if isinstance(self.options, kind):
            return make_options(self.attention, asdict(self.options))
        if not isinstance(self.options, Mapping | None):
            raise SbmtError(f"a mapping or {kind.__name__} as options", type(self.options).__name__, "use override()")
        names = {f.name for f in fields(kind)}
        start = {name: value for name, value in self.option_defaults if name in names}
        return make_options(self.attention, start | dict(self.options or {}))

    def attention_arguments(self) -> dict[str, Any]:
        """Returns the options of the attention mechanism, plus ``n_positions`` if its constructor takes it."""
        arguments = arguments_of(self.options)
        if "n_positions" in parameters_of(ATTENTIONS[self.attention]):
            arguments.setdefault("n_positions", self.length)
        return arguments

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dictionary for JSON."""
        return {name: value for name, value in asdict(self).items() if name != "option_defaults"}

    @classmethod
    def from_dict(cls: type[Config], values: dict[str, Any]) -> Config:
        """Restores a configuration from :meth:`to_dict`; raises SbmtError for an unknown field or an invalid value."""
        try:
            return cls(**values)
        except TypeError as error:  # an unknown field, or no fields at all
            raise SbmtError(f"the fields of {cls.__name__}", f"others ({error})", "train the model again") from error

    def override(self: Config, **values: Any) -> Config:
        """Returns a copy with changed fields and options, ignoring None. A new attention keeps shared options."""
        given = {name: value for name, value in values.items() if value is not None}
        known = {f.name for f in fields(self)}
        changed = {name: value for name, value in given.items() if name in known}
        kept = {f.name for f in fields(options_of(changed.get("attention", self.attention)))}
        present = {name: value for name, value in asdict(self.options).items() if name in kept}
        changed.setdefault("options", present | {name: value for name, value in given.items() if name not in known})
        return replace(self, **changed)

    @abstractmethod
    def make_model(self, info: dict[str, Any]) -> nn.Module:
        """Builds the model, drawing weights from torch's global generator; see :func:`build_model`."""

    def make_encoder(self, vocab_size: int | None, **arguments: Any) -> Encoder:
        """Builds an encoder with the configured network and attention mechanism."""
        names = ["d_model", "d_hidden", "n_heads", "n_layers", "embedding_std", "positions", "has_tied_start"]
        names += ["attention", "dropout", "attention_dropout", "convolution"]  # fields that only some tasks have
        arguments |= {name: getattr(self, name) for name in names if hasattr(self, name)}
        length = self.length if self.positions == "learned" else None
        rows = self.n_layers * (self.d_model + self.d_hidden) + (length or 0) + (vocab_size or 0)
        if 4 * rows * self.d_model >= MOST_BYTES:  # in bytes; such a network would exhaust memory
            raise SbmtError(f"a network of fewer than {MOST_BYTES:,} bytes", "a larger one", "choose smaller sizes")
        return Encoder(vocab_size, length, **arguments, **self.attention_arguments())

    def start_from(self, model: nn.Module) -> dict[str, Any]:
        """Loads the initial weights if they come from another run, and returns a record of them for the result."""
        return {}

    @abstractmethod
    def open_data(self, tokenizer: Tokenizer | None = None, test_seed: int = 0) -> TaskData:
        """Opens the data of a run, with the given tokeniser if any. ``test_seed`` seeds generated test sequences."""

    def loss(self, logits: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
        """Computes the cross entropy in nats, which is binary for a single logit. The mean over no labels is 0."""
        if not len(labels) and reduction == "mean":
            return 0.0 * logits.float().sum()
        if logits.shape[-1] == 1:
            logits, labels = logits.float().flatten(), labels.float()
            return nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction=reduction)
        return nn.functional.cross_entropy(logits.float(), labels, reduction=reduction)

    def predict(self, logits: Tensor) -> Tensor:
        """Returns the most likely labels."""
        return (logits.flatten() > 0).long() if logits.shape[-1] == 1 else logits.argmax(-1)

    def make_optimizer(self, parameters: Iterable[dict[str, Any]]) -> torch.optim.Optimizer:
        """Creates AdamW for groups of parameters; groups without a learning rate of their own use ``learning_rate``."""
        decay, eps = getattr(self, "weight_decay", 0.0), 1e-8 if self.is_generated else 1e-6
        return torch.optim.AdamW(parameters, self.learning_rate, eps=eps, weight_decay=decay)

    def parameter_groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """Groups a model's parameters. Those of SBM layers form a second group if their learning rate differs.

        Without ``block_model_rate``, SBM layers trained by likelihood have a higher rate than the network. After a rare
        huge gradient, Adam takes tiny steps, about a hundred of them with ``BETAS`` and a thousand with its defaults.
        """
        layers = [x for x in model.modules() if isinstance(x, SBMAttention)]
        rate = self.block_model_rate
        if rate is None:
            layers = [layer for layer in layers if layer.learning == "likelihood"]
            rate = FIT_RATE * self.learning_rate
        apart = {id(p): p for layer in layers for p in layer.parameters()}
        groups: list[dict[str, Any]] = [{"params": [p for p in model.parameters() if id(p) not in apart]}]
        return [*groups, {"params": list(apart.values()), "lr": rate, "betas": BETAS}] if apart else groups

    def learning_rate_share(self, step: int) -> float:
        """Returns the learning rate at a step, counted from 0, as a fraction of the largest.

        The rate rises linearly over ``warmup_steps``, and falls over the last ``cooldown`` steps, or else all others.
        """
        warmup = getattr(self, "warmup_steps", 0)
        cooldown = getattr(self, "cooldown", self.steps - warmup - 1)
        return min(1.0, (step + 1) / (warmup + 1), (self.steps - step) / (cooldown + 1))

    def n_examples(self, split: str) -> int | None:
        """Returns how many examples of ``dev`` or a test split to evaluate; None means all."""
        return getattr(self, "dev_examples" if split == "dev" else "test_examples", None)

    def metrics_of(self, loss: float, predictions: Tensor, labels: Tensor) -> dict[str, float]:
        """Returns additional metrics of an evaluation, such as perplexity or F1."""
        return {}

    def baselines(self, data: TaskData, name: str, test: Any) -> dict[str, Any]:
        """Returns the scores of simple predictors on a test split, for comparison."""
        return {}


def build_model(config: TrainingConfig, info: dict[str, Any] | None = None) -> Any:
    """Builds the model of a configuration, with weights from its seed. Torch's global generator is left unchanged.

    ``info`` describes prepared examples by ``vocab_size``, ``class_names`` and ``n_documents``.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return config.make_model(info or {})
