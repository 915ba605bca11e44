"""The generators that a run draws its masks from."""

from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor

_EVALUATION = 1 << 62  # no batch of a training has so large a number


class MaskSource(ABC):
    """Gives every batch the generator of its masks."""

    @abstractmethod
    def generator(self, number: int, *, is_training: bool) -> torch.Generator:
        """The generator of batch ``number`` of training or of an evaluation."""

    def state(self) -> Tensor | None:
        """What a checkpoint must hold so that training goes on with the same masks; None if that is nothing."""
        return None

    def restore(self, state: Tensor | None) -> None:  # noqa: B027 - most have nothing to restore
        """Takes up what :meth:`state` returned."""


class MasksByNumber(MaskSource):
    """A generator of its own for every batch, seeded by (seed, number): any batch can be computed by itself."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def generator(self, number: int, *, is_training: bool) -> torch.Generator:
        """A new generator."""
        key = self.seed, number if is_training else _EVALUATION + number
        state = np.random.SeedSequence(key).generate_state(1, np.uint64)
        return torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))


class MasksInOrder(MaskSource):
    """One generator for all of training, and one that every evaluation starts anew."""

    def __init__(self, seed: int, evaluation_seed: int) -> None:
        self.training = torch.Generator().manual_seed(seed)
        self.evaluation = torch.Generator().manual_seed(evaluation_seed)

    def generator(self, number: int, *, is_training: bool) -> torch.Generator:
        """The generator as the last batch left it."""
        if is_training:
            return self.training
        if number == 0:
            self.evaluation.manual_seed(self.evaluation.initial_seed())
        return self.evaluation

    def state(self) -> Tensor | None:
        """The state of training's generator."""
        return self.training.get_state()

    def restore(self, state: Tensor | None) -> None:
        """Gives training's generator this state."""
        assert state is not None
        self.training.set_state(state)
