import json

import numpy as np
import pytest

from sbmt import SbmtError
from sbmt.experiments.data.listops.source import listops_source
from sbmt.experiments.data.pathfinder import source as pathfinder
from sbmt.experiments.data.pathfinder.settings import PathfinderSettings
from sbmt.experiments.data.pathfinder.source import pathfinder_source
from sbmt.experiments.data.retrieval.topics import topics_source
from sbmt.experiments.data.source import SPLITS, Examples, Pool, by_shard, shuffled
from tests.experiments.data.layouts import same_examples


def test_examples_lie_end_to_end():
    examples = Examples.of([(b"ab", b""), (b"c", b"de")], [1, 0], weight=[0.5, 2.0])
    assert examples.symbols.tobytes() == b"abcde"
    assert examples.lengths.tolist() == [[2, 0], [1, 2]]
    assert examples.labels.tolist() == [1, 0] and examples.labels.dtype == np.int64
    assert examples.extras["weight"].tolist() == [0.5, 2.0]


def test_there_may_be_no_examples():
    examples = Examples.of([], [])
    assert examples.symbols.size == 0 and len(examples.lengths) == len(examples.labels) == 0


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "change",
    [
        {"symbols": np.arange(3, dtype=np.int64)},
        {"symbols": np.arange(3, dtype=np.uint64)},
        {"symbols": np.arange(3, dtype=np.int16)},
        {"symbols": np.zeros(4, np.uint8)},
        {"lengths": np.array([1, 2])},
        {"labels": np.array([0])},
        {"extras": {"weight": np.array([1.0])}},
    ],
)
def test_sizes_that_do_not_fit_are_refused(change):
    whole = {"symbols": np.zeros(3, np.uint8), "lengths": np.array([[1], [2]]), "labels": np.array([0, 1])}
    Examples(**whole)
    with pytest.raises(SbmtError):
        Examples(**whole | change)


def test_every_example_goes_where_its_shard_says():
    """Further splits come after the usual three, in the order of the shards."""
    splits = np.array(["mismatched", "dev", "train", "other", "test", "mismatched"])
    arranged = by_shard(Pool(np.zeros(6, np.int64), np.ones((6, 1), np.int64), splits, {}))
    found = {split: rows.tolist() for split, rows in arranged.items()}
    assert found == {"train": [2], "dev": [1], "test": [4], "mismatched": [0, 5], "other": [3]}
    assert list(found) == [*SPLITS, "mismatched", "other"]


def test_shuffling_depends_on_size_and_seed_alone():
    np.random.seed(1)
    first = shuffled(50, 3)
    np.random.seed(2)
    assert (shuffled(50, 3) == first).all()
    assert sorted(first.tolist()) == list(range(50))
    assert (shuffled(50, 4) != first).any() and (first != np.arange(50)).any()


SMALL_IMAGES = PathfinderSettings(size=16, contour_length=5, n_distractors=1, marker_radius=1.0, seed_distance=5.0)
GENERATED = {
    "listops": (listops_source, dict(n_train=2000, n_dev=20, n_test=20, min_length=20, max_length=100)),
    "pathfinder": (pathfinder_source, dict(settings=SMALL_IMAGES, n_images=70)),
    "retrieval": (topics_source, dict(n_train=60, n_dev=20, n_test=20)),
}


@pytest.mark.parametrize("task", GENERATED)
def test_generated_shards_can_be_made_again_and_in_any_order(task, monkeypatch):
    monkeypatch.setattr(pathfinder, "SHARD_SIZE", 30)
    make, sizes = GENERATED[task]
    first, second, other = make(**sizes), make(**sizes), make(**sizes, seed=1)
    forward = [shard.make() for shard in first.shards]
    backward = [shard.make() for shard in reversed(second.shards)][::-1]
    assert len(forward) == 3 and all(map(same_examples, forward, backward))
    made = [*forward, other.shards[0].make(), other.shards[1].make()]
    assert not any(same_examples(x, y) for i, x in enumerate(made) for y in made[:i])


@pytest.mark.parametrize(
    ("task", "changes"),
    [
        ("listops", dict(n_train=9, n_dev=9, n_test=9, min_length=9, max_length=999, max_depth=9, max_args=9, seed=9)),
        ("pathfinder", dict(settings=SMALL_IMAGES, n_images=999, seed=9)),
        ("retrieval", dict(n_topics=9, n_train=9, n_dev=9, n_test=9, seed=9)),
    ],
)
def test_settings_tell_contents_apart(task, changes):
    make = GENERATED[task][0]
    assert json.loads(json.dumps(make().settings)) == make().settings
    assert all(make(**{name: value}).settings != make().settings for name, value in changes.items())
