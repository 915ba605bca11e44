"""Runs on twins among photographs: which pictures they see, and what they cannot read."""

import pytest
import torch

from sbmt import SbmtError
from sbmt.experiments.data.prepared import open_prepared, prepare
from sbmt.experiments.data.twins import low_frequencies, pictures_of
from sbmt.experiments.training import TwinsConfig, evaluate, fit
from sbmt.experiments.training.data import BatchStream
from tests.experiments.data.toy import toy_examples, toy_source
from tests.experiments.training.tiny_language import SMALL_OPTIONS

TINY = TwinsConfig(
    data="toy-image",
    crop=6,
    length=8,
    batch_size=4,
    steps=3,
    d_model=8,
    d_hidden=8,
    test_sequences=16,
    attention="full",
    option_defaults=SMALL_OPTIONS,
)
pytestmark = pytest.mark.usefixtures("toys")


def test_training_and_test_show_pictures_of_their_own_splits(toys):
    """Every token is found among the crops of its split, and in no other."""
    data, splits = TINY.open_data(), open_prepared(toys / "toy-image").splits
    tokens = {}
    for name, split in splits.items():
        pictures = pictures_of(split).float() / 63.75 - 2
        crops = pictures.unfold(1, 6, 1).unfold(2, 6, 1).reshape(1, -1, 36)
        tokens[name] = low_frequencies(crops)[0]
    for name in ("train", "test"):
        batch = next(iter(BatchStream(data.feeds[name], data.feeds[name].in_order(16, 16))))
        for other, known in tokens.items():
            nearest = torch.stack([(known - token).norm(dim=1).min() for token in batch.tokens.flatten(0, 1)])
            assert nearest.max() < 1e-3 if other == name else nearest.min() > 0.02


@pytest.mark.bad_input
def test_what_is_not_there_is_told(toys, tmp_path):
    for changes, words in (
        ({"data": "toy-text"}, "prepared images, got text"),
        ({"data": "image-lossy"}, "sbmt data prepare image"),
        ({"crop": 9}, "crop ≤ 8"),
    ):
        with pytest.raises(SbmtError, match=words):
            fit(TINY.override(**changes), tmp_path / "run")
        assert not (tmp_path / "run").exists()
    run = fit(TINY)
    other = prepare(toy_source("image", make=lambda task, n, i: toy_examples(task, n, i + 7)), tmp_path)
    with pytest.raises(SbmtError, match="examples with checksum"):
        evaluate(run, prepared=other)
