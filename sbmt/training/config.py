"""Settings of a training run, and the named sizes."""

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_args

from sbmt.density import DensityKind
from sbmt.errors import SbmtError, check_sizes, choose
from sbmt.exploration import ExtraKeys


def _option(default: Any, help_: str) -> Any:
    return field(default=default, metadata={"help": help_})


@dataclass(frozen=True)
class RepeatedTokensConfig:
    """Everything that decides a run on repeated tokens, apart from versions and hardware.

    The command line offers every field under its own name. The defaults are the demo's.

    Raises:
        SbmtError: If a value is out of range.
    """

    attention: str = _option("sbm", "attention: sbm, full or random_mask")
    preset: str = _option("recommended", "settings of sbm: recommended (exact law) or faithful (Algorithm 1)")
    sampler: str | None = _option(None, "edge law of sbm: exact, fastrg or bernoulli; the preset's if left out")
    gate_rule: str | None = _option(None, "gate of sbm: score (equation 9) or weight; the preset's if left out")
    link: str | None = _option(None, "link of sbm: bilinear or poisson; the preset's if left out")
    exploration: float | None = _option(None, "exploration δ of sbm while training; the preset's if left out")
    extra_keys: float | None = _option(None, "instead of δ: expected extra keys per query while training")
    mask_density: float = _option(0.25, "edge probability of random_mask")
    density_weight: float = _option(0.0, "λ, weight of the mean density in the loss")
    density_kind: Literal["sampled", "expected"] = _option("sampled", "density in the loss: sampled or expected")
    length: int = _option(64, "tokens per sequence, and number of values")
    batch_size: int = _option(64, "sequences per step")
    steps: int = _option(1000, "optimiser steps")
    learning_rate: float = _option(1e-3, "Adam's learning rate")
    d_model: int = _option(32, "width")
    d_hidden: int = _option(32, "width inside the MLPs")
    n_heads: int = _option(1, "heads per layer")
    n_layers: int = _option(1, "layers")
    n_clusters: int = _option(128, "clusters per head of sbm")
    embedding_std: float = _option(1.0, "standard deviation of token embeddings at the start")
    test_sequences: int = _option(1024, "sequences of the final evaluation")
    seed: int = _option(0, "seed of weights, data and masks")

    def __post_init__(self) -> None:
        sizes = ("length", "batch_size", "steps", "d_model", "d_hidden", "n_heads", "n_layers", "n_clusters")
        check_sizes(**{name: getattr(self, name) for name in (*sizes, "test_sequences")})
        for name in ("learning_rate", "embedding_std"):
            if not 0 < getattr(self, name) < float("inf"):
                raise SbmtError(f"{name} > 0", getattr(self, name), "give a positive number")
        if self.extra_keys is not None and self.exploration is not None:
            raise SbmtError("exploration or extra_keys", "both", "leave one out")
        if not 0 <= self.density_weight < float("inf"):
            raise SbmtError("density_weight ≥ 0", self.density_weight, "0 switches the penalty off")
        choose("density_kind", self.density_kind, dict.fromkeys(get_args(DensityKind)))
        if not 0 <= self.seed < 1 << 63:
            raise SbmtError("seed in [0, 2⁶³)", self.seed, "give a non-negative integer")

    def attention_arguments(self) -> dict[str, Any]:
        """Arguments for :func:`~sbmt.layers.build_attention`, besides the sizes."""
        if self.attention == "sbm":
            names = ("sampler", "gate_rule", "link", "exploration")
            overrides = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
            if self.extra_keys is not None:
                overrides["exploration"] = ExtraKeys(self.extra_keys)
            return {"preset": self.preset, "n_clusters": self.n_clusters} | overrides
        return {"mask_density": self.mask_density} if self.attention == "random_mask" else {}

    def to_dict(self) -> dict[str, Any]:
        """The fields as a dictionary that JSON holds."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "RepeatedTokensConfig":
        """The configuration that :meth:`to_dict` wrote.

        Raises:
            SbmtError: If a field is unknown or a value is out of range.
        """
        known = {f.name for f in fields(cls)}
        if not isinstance(values, dict) or set(values) - known:
            unknown = sorted(set(values) - known) if isinstance(values, dict) else type(values).__name__
            raise SbmtError("fields of RepeatedTokensConfig", unknown, "write the configuration with this version")
        try:
            return cls(**values)
        except TypeError as error:
            raise SbmtError("numbers and names in the configuration", str(error), "mend or remake the file") from error

    def override(self, **values: Any) -> "RepeatedTokensConfig":
        """A copy with those fields changed whose value is not None."""
        return replace(self, **{name: value for name, value in values.items() if value is not None})


SIZES = {
    "demo": RepeatedTokensConfig(),
    "paper": RepeatedTokensConfig(length=256, batch_size=256, steps=2000),
}
"""``demo``: minutes on two cores. ``paper``: the synthetic column of the paper's Table 7."""
