"""Settings of a run on repeated tokens, and the named sizes."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from sbmt.experiments.data.batches import Batch, batch_of_tokens
from sbmt.experiments.data.repeated_tokens import D_VALUE, sample_fresh_values, sample_repeated_tokens
from sbmt.experiments.training.tasks.generated import RepeatsConfig
from sbmt.models import TokenTagger
from sbmt.registration import option

REPEATED_TOKENS = "repeated_tokens"


@dataclass(frozen=True)
class RepeatedTokensConfig(RepeatsConfig):
    """Everything that decides a run on repeated tokens, apart from versions and hardware. The defaults are the demo's.

    Adam follows a constant learning rate, with a cooldown if asked for. Sequences and masks are drawn one after the
    other from a generator each.
    """

    task: str = option(REPEATED_TOKENS, "always repeated_tokens")
    fresh_values: bool = option(False, "values are vectors, drawn anew for every sequence; tokens are noisy copies")

    def make_model(self, info: dict[str, Any]) -> nn.Module:
        """A tagger of every token."""
        if self.fresh_values:
            return TokenTagger(self.make_encoder(None, None, d_input=D_VALUE), 1)
        return TokenTagger(self.make_encoder(self.length, None), 1)

    def sample(self, n: int, generator: torch.Generator) -> Batch:
        """Draws sequences; every token has a label."""
        sample = sample_fresh_values if self.fresh_values else sample_repeated_tokens
        return batch_of_tokens(*sample(n, self.length, generator=generator))


SIZES = {
    "demo": RepeatedTokensConfig(),
    "paper": RepeatedTokensConfig(length=256, batch_size=256, steps=2000),
}
"""``demo``: minutes on two cores. ``paper``: the synthetic column of the paper's Table 7."""

FITTED = {"steps": 2000, "learning_rate": 3e-3, "block_model_rate": 1e-2, "n_clusters": 256}


def fitted(**overrides: Any) -> dict[str, Any]:
    """What changes under the preset ``fitted``: steps and rates, which fall over the last third of training.

    Args:
        **overrides: Fields and options that are set otherwise; None counts as not set.
    """
    settings = FITTED | {name: value for name, value in overrides.items() if value is not None}
    return {"cooldown": settings["steps"] // 3} | settings
