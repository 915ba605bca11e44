"""Generated examples are the same on every machine and in every version, and differ with every setting."""

import hashlib
from functools import partial

import pytest
import torch

from sbmt import SbmtError
from sbmt.experiments.data.listops import TreeLaw, listops_source
from sbmt.experiments.data.pathfinder import PathfinderSettings, pathfinder_source
from sbmt.experiments.data.recall import sample_multi_query, sample_recall
from sbmt.experiments.data.repeated_tokens import random_mask_ceiling, sample_fresh_values, sample_repeated_tokens
from sbmt.experiments.data.retrieval import topics_source
from tests.layers.inputs import seeded


@pytest.mark.parametrize(
    "source, golden",
    [
        (listops_source(), "a2055bab3479b3e9d90ad317bbd68e82"),
        (listops_source(min_length=20, max_length=100), "c7e3a60991cfe76ac3524881241cdfaa"),
        (pathfinder_source(), "3cd98f9f8bc63db452479502d4f15d38"),
        (topics_source(n_train=20), "d7e6bf3eb00d9789d548a9fc1bf59723"),
    ],
    ids=["listops", "small trees", "pathfinder", "topics"],
)
def test_a_part_never_changes(source, golden):
    """Compares the start of the SHA-256 of symbols and labels of the first part with the expected one."""
    _, part = next(iter(source.parts()))
    content = part.symbols.tobytes() + part.labels.astype("<i8").tobytes()
    assert hashlib.sha256(content).hexdigest().startswith(golden)


recall = partial(sample_recall, batch_size=2)
many_queries = partial(sample_multi_query, batch_size=2)


@pytest.mark.parametrize(
    "sample",
    [
        partial(sample_repeated_tokens, length=5),
        partial(sample_fresh_values, length=5),
        sample_recall,
        partial(sample_multi_query, length=40, n_pairs=5, vocab_size=30),
    ],
    ids=["repeated tokens", "fresh values", "recall", "many queries"],
)
def test_a_seed_fixes_the_draw_and_batches_do_not_matter(sample):
    first, other = (sample(batch_size=8, generator=seeded(seed)) for seed in (0, 1))
    assert not torch.equal(first[0], other[0])
    torch.manual_seed(0)
    generator = seeded(0)
    parts = [sample(batch_size=n, generator=generator) for n in (1, 4, 3)]
    for i, whole in enumerate(first):
        assert torch.equal(whole, torch.cat([part[i] for part in parts]))
    assert torch.equal(sample(batch_size=8)[0], first[0])  # the global seed is used without a generator


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("make", "wrong", "words"),
    [
        (TreeLaw, dict(max_args=1), "max_args ≥ 2"),
        (TreeLaw, dict(min_length=500, max_length=501), "min_length < max_length - 1.*500 and 501"),
        (PathfinderSettings, dict(contour_length=1), "contour_length ≥ 2"),
        (PathfinderSettings, dict(seed_distance=3.9), "seed_distance ≥ 4.0, got 3.9"),
        (recall, dict(n_keys=16), "n_keys ≥ 17"),
        (many_queries, dict(length=19, n_pairs=5, vocab_size=30), "length"),
        (many_queries, dict(length=20, n_pairs=5, vocab_size=11), "vocab_size"),
        (many_queries, dict(length=0, n_pairs=1, vocab_size=9), "≥ 1"),
        (random_mask_ceiling, dict(length=4, mask_density=float("nan")), "mask_density"),
    ],
)
def test_bad_numbers_are_refused(make, wrong, words):
    with pytest.raises(SbmtError, match=words):
        make(**wrong)


def test_the_defaults_are_long_range_arenas():
    trees, images = listops_source(), pathfinder_source()
    assert trees.settings["sizes"] == {"train": 96_000, "dev": 2_000, "test": 2_000}
    law = {"max_depth": 10, "max_args": 10, "digit_share": 0.75, "min_length": 500, "max_length": 2000}
    assert trees.settings["law"] == law
    assert images.settings["n_images"] == 200_000
    assert images.settings["images"] == {
        **{"size": 32, "padding": 1.0, "paddle_margin": 1.0, "paddle_length": 2.0, "paddle_thickness": 0.5},
        **{"marker_radius": 1.5, "contour_length": 14, "distractor_length": 4, "n_distractors": 5},
        **{"seed_distance": 7.0, "continuity": 1.0, "antialias": 2, "paddle_contrast": 0.75},
    }
