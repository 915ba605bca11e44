"""Settings that every training run has: attention, network, penalty on density, seed."""

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, TypeVar

from sbmt.block_model.density import DensityKind
from sbmt.block_model.exploration import ExtraKeys, check_exploration
from sbmt.errors import SbmtError, check_choice, check_seed, check_sizes
from sbmt.layers.registry import ATTENTIONS

Config = TypeVar("Config", bound="AttentionConfig")


def option(default: Any, help_: str) -> Any:
    """A field with the help text that the command line shows."""
    return field(default=default, metadata={"help": help_})


@dataclass(frozen=True)
class AttentionConfig:
    """What runs on every task share. The command line offers every field under its own name.

    Raises:
        SbmtError: If a value is out of range.
    """

    attention: str = option("sbm", f"attention: {', '.join(ATTENTIONS)}")
    preset: str = option("recommended", "settings of sbm: recommended (exact law) or faithful (Algorithm 1)")
    sampler: str | None = option(None, "edge law of sbm: exact, fastrg or bernoulli; the preset's if left out")
    gate_rule: str | None = option(None, "gate of sbm: score (equation 9) or weight; the preset's if left out")
    link: str | None = option(None, "link of sbm: bilinear or poisson; the preset's if left out")
    membership: str | None = option(None, "memberships of sbm: sigmoid or softmax; sigmoid if left out")
    is_diagonal: bool = option(False, "clusters of sbm meet none but themselves: a diagonal block matrix")
    self_loops: bool | None = option(None, "whether every token of sbm attends itself; the preset's if left out")
    window: int | None = option(None, "sbm and random_mask also attend the tokens at most window / 2 places away")
    has_tied_start: bool = option(False, "start the key projection as a copy of the query projection")
    exploration: float | None = option(None, "exploration δ of sbm while training; the preset's if left out")
    extra_keys: float | None = option(None, "instead of δ: expected extra keys per query while training")
    mask_density: float = option(0.25, "edge probability of random_mask, outside its window if it has one")
    rank: int = option(256, "features of performer, landmarks of nystromformer, projected keys of linformer")
    chunk: int = option(32, "tokens per chunk of reformer")
    density_weight: float = option(0.0, "λ, weight of the mean density in the loss")
    density_kind: Literal["sampled", "expected"] = option("sampled", "density in the loss: sampled or expected")
    density_start: int = option(0, "step after which the density counts")
    density_ramp: int = option(0, "steps over which λ then grows to its full size")
    length: int = option(64, "tokens per sequence, and number of values")
    batch_size: int = option(64, "sequences per step")
    steps: int = option(1000, "optimiser steps")
    learning_rate: float = option(1e-3, "Adam's learning rate")
    d_model: int = option(32, "width")
    d_hidden: int = option(32, "width inside the MLPs")
    n_heads: int = option(1, "heads per layer")
    n_layers: int = option(1, "layers")
    n_clusters: int = option(128, "clusters per head of sbm")
    embedding_std: float = option(1.0, "standard deviation of token embeddings at the start")
    seed: int = option(0, "seed of weights, data and masks")

    def __post_init__(self) -> None:
        sizes = ("length", "batch_size", "steps", "d_model", "d_hidden", "n_heads", "n_layers", "n_clusters")
        check_sizes(**{name: getattr(self, name) for name in (*sizes, "rank", "chunk")})
        for name in ("learning_rate", "embedding_std"):
            if not 0 < getattr(self, name) < float("inf"):
                raise SbmtError(f"{name} > 0", getattr(self, name), "give a positive number")
        if not 0 <= self.mask_density <= 1:
            raise SbmtError("mask_density in [0, 1]", self.mask_density, "it is the probability of an edge")
        check_exploration(self.exploration or 0.0)
        if self.extra_keys is not None:
            ExtraKeys(self.extra_keys)
        if self.extra_keys is not None and self.exploration is not None:
            raise SbmtError("exploration or extra_keys", "both", "leave one out")
        if not 0 <= self.density_weight < float("inf"):
            raise SbmtError("density_weight ≥ 0", self.density_weight, "0 switches the penalty off")
        self._check_steps("density_start", "density_ramp")
        check_choice("density_kind", self.density_kind, DensityKind)
        check_seed(self.seed)

    def _check_steps(self, *names: str) -> None:
        for name in names:
            if getattr(self, name) < 0:
                raise SbmtError(f"{name} ≥ 0", getattr(self, name), "give a number of steps")

    def attention_arguments(self) -> dict[str, Any]:
        """Arguments for :func:`~sbmt.layers.build_attention`, besides the sizes."""
        arguments: dict[str, dict[str, Any]] = {
            "random_mask": {"mask_density": self.mask_density, "window": self.window},
            "performer": {"n_features": self.rank},
            "reformer": {"n_chunk": self.chunk},
            "nystromformer": {"n_landmarks": self.rank},
            "linformer": {"n_projected": self.rank, "n_positions": self.length},
            "sbm": {"preset": self.preset},
            "sbm_static": {"n_positions": self.length},
        }
        mine = arguments.get(self.attention, {})
        if self.attention in ("sbm", "sbm_static"):
            names = ("sampler", "gate_rule", "link", "membership", "self_loops", "window", "exploration")
            mine |= {name: getattr(self, name) for name in names if getattr(self, name) is not None}
            mine |= {"n_clusters": self.n_clusters} | ({"is_diagonal": True} if self.is_diagonal else {})
            if self.extra_keys is not None:
                mine |= {"exploration": ExtraKeys(self.extra_keys)}
        return mine

    def density_weight_at(self, step: int) -> float:
        """λ at a step (from 1): 0 up to ``density_start``, then a line over ``density_ramp`` steps to its full size."""
        share = (step - self.density_start) / max(1, self.density_ramp)
        return self.density_weight * max(0.0, min(1.0, share))

    def to_dict(self) -> dict[str, Any]:
        """The fields as a dictionary that JSON holds."""
        return asdict(self)

    @classmethod
    def from_dict(cls: type[Config], values: dict[str, Any]) -> Config:
        """The configuration that :meth:`to_dict` wrote.

        Raises:
            SbmtError: If a field is unknown or a value is out of range.
        """
        known = {f.name for f in fields(cls)}
        if not isinstance(values, dict) or set(values) - known:
            unknown = sorted(set(values) - known) if isinstance(values, dict) else type(values).__name__
            raise SbmtError(f"fields of {cls.__name__}", unknown, "write the configuration with this version")
        try:
            return cls(**values)
        except TypeError as error:
            raise SbmtError("numbers and names in the configuration", str(error), "mend or remake the file") from error

    def override(self: Config, **values: Any) -> Config:
        """A copy with those fields changed whose value is not None."""
        return replace(self, **{name: value for name, value in values.items() if value is not None})
