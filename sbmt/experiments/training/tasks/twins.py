"""Settings of a run on twins among photographs."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sbmt.errors import SbmtError, check_sizes
from sbmt.experiments.data.batches import Batch, batch_of_tokens
from sbmt.experiments.data.locate import prepared_folder
from sbmt.experiments.data.prepared import Prepared, open_prepared
from sbmt.experiments.data.tokenizer import Tokenizer
from sbmt.experiments.data.twins import N_FREQUENCIES, low_frequencies, pictures_of, sample_twins
from sbmt.experiments.training.data import INFO, TaskData
from sbmt.experiments.training.tasks.generated import RepeatsConfig
from sbmt.models import TokenTagger
from sbmt.registration import option

TWINS = "twins"


@dataclass(frozen=True)
class TwinsConfig(RepeatsConfig):
    """Everything that decides a run on twins among photographs, apart from data, versions and hardware."""

    task: str = option(TWINS, "always twins")
    data: str = option("image-lossy", "name of the prepared images")
    crop: int = option(30, "side of a crop in pixels")
    learning_rate: float = option(3e-3, "Adam's learning rate")
    d_model: int = option(64, "width")
    d_hidden: int = option(64, "width inside the MLPs")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(crop=self.crop)

    def make_model(self, info: dict[str, Any]) -> nn.Module:
        """A tagger of every crop."""
        return TokenTagger(self.make_encoder(None, None, d_input=min(N_FREQUENCIES, self.crop) ** 2), 1)

    def open_data(
        self, tokenizer: Tokenizer | None = None, prepared: Prepared | None = None, test_seed: int = 0
    ) -> TaskData:
        """Sequences of crops, from different pictures and generators for training and for the test."""
        prepared = prepared or open_prepared(prepared_folder() / self.data)
        if prepared.info["task"] != "image":
            raise SbmtError("prepared images", f"{prepared.info['task']} in {prepared.folder}", "name others")
        train, test = (pictures_of(prepared.splits[split]) for split in ("train", "test"))
        if self.crop > (side := train.shape[1]):
            raise SbmtError(f"crop ≤ {side}, the side of the pictures", self.crop, "cut smaller crops")
        info = {name: prepared.info[name] for name in INFO}
        return self._task_data(partial(self._sample, train), partial(self._sample, test), test_seed, info)

    def _sample(self, pictures: Tensor, n: int, generator: torch.Generator) -> Batch:
        """Draws sequences; every token has a label."""
        crops, labels = sample_twins(pictures, n, self.length, self.crop, generator=generator)
        return batch_of_tokens(low_frequencies(crops), labels)
