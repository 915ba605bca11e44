"""Settings of a run on repeated tokens, and the named sizes."""

from dataclasses import dataclass

from sbmt.errors import check_sizes
from sbmt.experiments.training.attention_config import AttentionConfig, option


@dataclass(frozen=True)
class RepeatedTokensConfig(AttentionConfig):
    """Everything that decides a run on repeated tokens, apart from versions and hardware. The defaults are the demo's.

    Raises:
        SbmtError: If a value is out of range.
    """

    cooldown: int = option(0, "steps at the end over which the learning rate falls to 0 along a line")
    test_sequences: int = option(1024, "sequences of the final evaluation")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(test_sequences=self.test_sequences)
        self._check_steps("cooldown")

    def learning_rate_at(self, step: int) -> float:
        """The learning rate at a step (from 1): constant, then a line over the last ``cooldown`` steps towards 0."""
        left = (self.steps - step + 1) / (self.cooldown + 1)
        return self.learning_rate * min(1.0, left)


SIZES = {
    "demo": RepeatedTokensConfig(),
    "paper": RepeatedTokensConfig(length=256, batch_size=256, steps=2000),
}
"""``demo``: minutes on two cores. ``paper``: the synthetic column of the paper's Table 7."""
