"""Settings of a training run, and what its task determines: model, data, loss, optimiser, scores."""

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
from sbmt.experiments.files import MOST_TENSORS
from sbmt.experiments.training.data import TaskData
from sbmt.layers import SBMAttention
from sbmt.layers.registry import ATTENTIONS, PRESETS, arguments_of, make_options, option, options_of, parameters_of
from sbmt.models import Encoder
from sbmt.models.encoder import Positions

BETAS = 0.9, 0.99  # of Adam, for block models with a separate learning rate
FIT_RATE = 3.0  # the learning rate of block models that learn by likelihood, in multiples of the network's
CAUSAL: dict[str, Any] = {"positions": "rotary", "option_defaults": (("causal", True),)}  # of language models
MAY_BE_0 = ("weight_decay", "warmup_steps", "n_distractors", "dropout", "attention_dropout")  # besides defaults of 0
Config = TypeVar("Config", bound="TrainingConfig")
CONFIGS: dict[str, type["TrainingConfig"]] = {}
"""The configuration class of every task; a class that names its ``tasks`` is registered when it is defined."""


@dataclass(frozen=True)
class TrainingConfig(ABC):
    """Everything that determines a run, apart from data, versions and hardware.

    The command line offers each field that is an ``option``, and every option of the attention, by name. Options may be
    given as a mapping of those that differ from the defaults. A new task is a subclass of ``GeneratedConfig`` or
    ``PreparedConfig``; keywords of its class statement are ``tasks``, its names, and defaults that differ.
    """

    attention: str = option("sbm", "name of the attention", ATTENTIONS)
    options: Any = None  # the attention's own; None: its defaults
    option_defaults: tuple[tuple[str, Any], ...] = field(default=(), compare=False, repr=False)  # of any; not saved
    positions: Positions = option("learned", "positions of tokens: learned, rotary or none")
    has_tied_start: bool = option(False, "start the key projection as a copy of the query projection")
    density_weight: float = option(0.0, "λ, weight of the mean density in the loss")
    density_kind: DensityKind = option("sampled", "density in the loss: sampled or expected")
    length: int = option(64, "tokens per sequence, and number of values")
    batch_size: int = option(64, "sequences per step")
    steps: int = option(1000, "optimiser steps")
    learning_rate: float = option(1e-3, "Adam's learning rate")
    block_model_rate: float | None = option(None, "rate of SBM attentions; None: the network's, tripled for likelihood")
    d_model: int = option(32, "width")
    d_hidden: int = option(32, "width inside the MLPs")
    n_heads: int = option(1, "heads per layer")
    n_layers: int = option(1, "layers")
    embedding_std: float = option(1.0, "standard deviation of token embeddings at the start")
    seed: int = option(0, "seed of weights, data and masks")
    task: str = ""
    accumulate: int = option(1, "parts that a batch is computed in, to save memory")
    precision: Literal["32-true", "bf16-mixed"] = option("32-true", "32-true or bf16-mixed")

    tasks: ClassVar[tuple[str, ...]] = ()
    is_generated: ClassVar[bool] = False  # whether sequences are drawn from a generator, without a dev split, on a CPU
    is_image: ClassVar[bool] = False  # whether tokens are pixels
    best_by: ClassVar[Literal["accuracy", "loss"]] = "accuracy"  # the score on dev that selects the weights to keep
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
        super().__init_subclass__(**defaults)  # refuses those that are left

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", self._make_options())
        self._check_fields()
        choose("task", self.task, dict.fromkeys(self.tasks))
        if self.batch_size % self.accumulate:
            raise SbmtError(f"accumulate that divides a batch of {self.batch_size}", self.accumulate, "change one")
        settings = arguments_of(self.options)
        learning = (PRESETS.get(settings.get("preset", ""), {}) | settings).get("learning")
        if learning == "likelihood" and self.density_weight:
            raise SbmtError("density_weight = 0 with likelihood", self.density_weight, "lower edges_per_query instead")

    def _check_fields(self) -> None:
        """Raises SbmtError unless every field has a value of its type; numbers must be positive, a few may be 0."""
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
                    raise SbmtError(f"{f.name} {'≥' if may_be_0 else '>'} 0", value, "give such a number")
                if isinstance(value, int) and value >= 1 << 31:
                    raise SbmtError(f"{f.name} < 2³¹", value, "give such a number")

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
        """The attention's options, and where its constructor takes it, ``n_positions``: the length of the task."""
        arguments = arguments_of(self.options)
        if "n_positions" in parameters_of(ATTENTIONS[self.attention]):
            arguments.setdefault("n_positions", self.length)
        return arguments

    def to_dict(self) -> dict[str, Any]:
        """The fields as a dictionary for JSON."""
        return {name: value for name, value in asdict(self).items() if name != "option_defaults"}

    @classmethod
    def from_dict(cls: type[Config], values: dict[str, Any]) -> Config:
        """The configuration of :meth:`to_dict`; SbmtError if a field is unknown or a value is out of range."""
        try:
            return cls(**values)
        except TypeError as error:  # an unknown field, or no fields at all
            raise SbmtError(f"settings of {cls.__name__}", error, "train again with this version") from error

    def override(self: Config, **values: Any) -> Config:
        """A copy with changed fields and options, except those given as None; a new attention keeps shared options."""
        given = {name: value for name, value in values.items() if value is not None}
        known = {f.name for f in fields(self)}
        changed = {name: value for name, value in given.items() if name in known}
        kept = {f.name for f in fields(options_of(changed.get("attention", self.attention)))}
        present = {name: value for name, value in asdict(self.options).items() if name in kept}
        changed.setdefault("options", present | {name: value for name, value in given.items() if name not in known})
        return replace(self, **changed)

    @abstractmethod
    def make_model(self, info: dict[str, Any]) -> nn.Module:
        """The model, with weights drawn from torch's global generator; see :func:`build_model`."""

    def make_encoder(self, vocab_size: int | None, **arguments: Any) -> Encoder:
        """An encoder with the network and the attention of the configuration."""
        names = ["d_model", "d_hidden", "n_heads", "n_layers", "embedding_std", "positions", "has_tied_start"]
        names += ["attention", "dropout", "attention_dropout", "convolution"]  # some of which not every task has
        arguments |= {name: getattr(self, name) for name in names if hasattr(self, name)}
        length = self.length if self.positions == "learned" else None
        rows = self.n_layers * (self.d_model + self.d_hidden) + (length or 0) + (vocab_size or 0)
        if 4 * rows * self.d_model >= MOST_TENSORS:  # bytes; a mistake, and building the network would exhaust memory
            raise SbmtError(f"a network of less than {MOST_TENSORS:,} bytes", "a larger one", "choose smaller sizes")
        return Encoder(vocab_size, length, **arguments, **self.attention_arguments())

    def start_from(self, model: nn.Module) -> dict[str, Any]:
        """Loads the weights that training starts from, if any; returns what results record of them."""
        return {}

    @abstractmethod
    def open_data(self, tokenizer: Tokenizer | None = None, test_seed: int = 0) -> TaskData:
        """The data of a run, with the tokeniser of a finished run; generated test examples depend on ``test_seed``."""

    def loss(self, logits: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
        """The cross entropy in nats, binary if there is a single logit; the mean over no labels is 0."""
        if not len(labels) and reduction == "mean":
            return 0.0 * logits.float().sum()
        if logits.shape[-1] == 1:
            logits, labels = logits.float().flatten(), labels.float()
            return nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction=reduction)
        return nn.functional.cross_entropy(logits.float(), labels, reduction=reduction)

    def predict(self, logits: Tensor) -> Tensor:
        """The likeliest labels."""
        return (logits.flatten() > 0).long() if logits.shape[-1] == 1 else logits.argmax(-1)

    def make_optimizer(self, parameters: Iterable[dict[str, Any]]) -> torch.optim.Optimizer:
        """AdamW on groups of parameters, with the largest learning rate for groups that do not specify one."""
        decay, eps = getattr(self, "weight_decay", 0.0), 1e-8 if self.is_generated else 1e-6
        return torch.optim.AdamW(parameters, self.learning_rate, eps=eps, weight_decay=decay)

    def parameter_groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """The parameters of a model; those of SBM attentions form a second group if their learning rate differs.

        Without ``block_model_rate``, those that learn by likelihood take larger steps than the network. After a rare
        huge gradient, Adam would hardly move for a thousand steps; with these betas it does so for a hundred.
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
        """The learning rate at a step (from 0) as a share of the largest.

        It rises linearly over ``warmup_steps``, and falls over the last ``cooldown`` steps or, without one, all others.
        """
        warmup = getattr(self, "warmup_steps", 0)
        cooldown = getattr(self, "cooldown", self.steps - warmup - 1)
        return min(1.0, (step + 1) / (warmup + 1), (self.steps - step) / (cooldown + 1))

    def n_examples(self, split: str) -> int | None:
        """The number of examples of ``dev`` or of a test split to evaluate; None means all."""
        return getattr(self, "dev_examples" if split == "dev" else "test_examples", None)

    def metrics_of(self, loss: float, predictions: Tensor, labels: Tensor) -> dict[str, float]:
        """Further metrics of a test, such as perplexity or F1."""
        return {}

    def baselines(self, data: TaskData, name: str, test: Any) -> dict[str, Any]:
        """Scores of simple predictors on a test split, for comparison."""
        return {}


def build_model(config: TrainingConfig, info: dict[str, Any] | None = None) -> Any:
    """The model of a configuration, with weights drawn from its seed; torch's global generator is left as it was.

    ``info`` describes prepared examples to the model: ``vocab_size``, ``class_names``, ``n_documents``.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return config.make_model(info or {})
