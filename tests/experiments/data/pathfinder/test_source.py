"""Pathfinder as a source: shards, splits, and Long Range Arena's folders."""

import hashlib
import shutil

import numpy as np
import pytest

from sbmt.errors import SbmtError
from sbmt.experiments.data.pathfinder.files import pathfinder_folder
from sbmt.experiments.data.pathfinder.images import generate_images
from sbmt.experiments.data.pathfinder.settings import PathfinderSettings
from sbmt.experiments.data.pathfinder.source import generate_shard, pathfinder_source
from tests.experiments.data.pathfinder.layout import as_array, as_text, lay_out, png

SMALL = PathfinderSettings(size=16, contour_length=5, n_distractors=1, marker_radius=1.0, seed_distance=5.0)


def test_a_shard_is_images_row_by_row():
    shard = generate_shard(3, 20, 4, SMALL)
    seeds = np.random.SeedSequence([4, 3])
    images = generate_images(20, np.random.Generator(np.random.PCG64(seeds)), SMALL)
    assert shard.symbols.tobytes() == b"".join(bytes(row) for image in images.pixels.tolist() for row in image)
    assert shard.lengths.tolist() == [[256]] * 20 and shard.labels.tolist() == images.labels.tolist()
    assert shard.extras["marker_distance"].tolist() == images.marker_distances.tolist()
    assert shard.extras["turn"].tolist() == images.turns.tolist()


def test_splits_are_a_permutation_by_the_seed(pool_of):
    source, other = (pathfinder_source(SMALL, n_images=57, seed=seed) for seed in (0, 1))
    pool, images = pool_of(source)
    arranged = source.arrange(pool)
    assert list(arranged) == ["train", "dev", "test"] and [len(x) for x in arranged.values()] == [45, 5, 7]
    order = np.concatenate(list(arranged.values()))
    assert order.dtype == np.int64 and sorted(order.tolist()) == list(range(57)) != order.tolist()
    assert len(set(images)) == 57
    assert np.concatenate(list(other.arrange(pool).values())).tolist() != order.tolist()
    assert np.concatenate(list(source.arrange(pool).values())).tolist() == order.tolist()


@pytest.mark.parametrize("write", [as_text, as_array], ids=["text", "array"])
def test_a_folder_is_found_and_read(tmp_path, pool_of, write):
    folder = tmp_path / "lra_release/lra_release/pathfinder32/curv_contour_length_14"
    levels = lay_out(folder, {"10": 3, "9": 4, "x": 2}, write)
    source = pathfinder_folder(tmp_path, 5)
    pool, images = pool_of(source)
    assert [shard.name for shard in source.shards] == ["9", "10", "x"]  # numbers as such, then words
    expected = levels["9"] + levels["10"] + levels["x"]
    assert images == [(pixels.tobytes(),) for pixels in expected]
    assert pool.labels.tolist() == [0, 1, 0, 1, 0, 1, 0, 0, 1] and (pool.lengths == 1024).all()
    assert set(pool.extras["contour_length"]) == {14.0} and set(pool.extras["distractor_length"]) == {4.0}
    assert [len(x) for x in source.arrange(pool).values()] == [7, 0, 2]
    content = b""
    for name in ("9.npy", "10.npy", "x.npy"):
        file = (folder / "metadata" / name).read_bytes()
        content += f"{name} {len(file)}\n".encode() + file
    assert source.settings == {
        "difficulty": "curv_contour_length_14",
        "size": 32,
        "metadata": {"n_files": 3, "sha256": hashlib.sha256(content).hexdigest()},
        "n_empty": 0,
        "seed": 5,
    }


def test_empty_images_are_left_out_and_counted(tmp_path, pool_of):
    levels = lay_out(tmp_path, {"1": 4, "2": 2})
    for name in ("1/sample_0.png", "1/sample_2.png", "2/sample_0.png", "2/sample_1.png"):
        (tmp_path / "imgs" / name).write_bytes(b"")
    source = pathfinder_folder(tmp_path)
    pool, images = pool_of(source)
    assert source.settings["n_empty"] == 4
    assert images == [(levels["1"][i].tobytes(),) for i in (1, 3)] and pool.labels.tolist() == [1, 1]
    assert len(source.shards) == 2 and len(source.shards[1].make().labels) == 0


def test_other_sizes(tmp_path, pool_of):
    levels = lay_out(tmp_path / "pathfinder64" / "curv_contour_length_14", {"1": 2}, size=64)
    with pytest.raises(SbmtError, match="pathfinder32"):
        pathfinder_folder(tmp_path)
    _, images = pool_of(pathfinder_folder(tmp_path, size=64))
    assert images == [(pixels.tobytes(),) for pixels in levels["1"]]
    source = pathfinder_folder(tmp_path / "pathfinder64" / "curv_contour_length_14")
    with pytest.raises(
        SbmtError, match=r"32 × 32 pixels in .*sample_0.png, which line 1 of .*1.npy names, got 64 × 64"
    ):
        source.shards[0].make()


@pytest.mark.bad_input
def test_what_is_not_there_or_damaged_is_named(tmp_path):
    with pytest.raises(SbmtError, match="got no such folders"):
        pathfinder_folder(tmp_path)
    lay_out(tmp_path, {"1": 3})
    for wrong, words in ((dict(seed=-1), "seed in"), (dict(size=0), "size ≥ 1")):
        with pytest.raises(SbmtError, match=words):
            pathfinder_folder(tmp_path, **wrong)
    source = pathfinder_folder(tmp_path)
    (tmp_path / "imgs" / "1" / "sample_2.png").write_bytes(png(np.zeros((32, 32), np.uint8))[:-20])
    with pytest.raises(SbmtError, match=r"a whole PNG file .*sample_2.png, which line 3 of .*1.npy names, got damage"):
        source.shards[0].make()
    (tmp_path / "imgs" / "1" / "sample_1.png").unlink()
    with pytest.raises(SbmtError, match=r"an image .*sample_1.png, which line 2 of .*1.npy names, got No such file"):
        pathfinder_folder(tmp_path)
    shutil.rmtree(tmp_path / "metadata")
    (tmp_path / "metadata").mkdir()
    with pytest.raises(SbmtError, match="files .npy in .*metadata, got none"):
        pathfinder_folder(tmp_path)
