import numpy as np
import pytest

from sbmt import SbmtError
from sbmt.experiments.data.source import SPLITS, Examples, Pool, by_shard


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
