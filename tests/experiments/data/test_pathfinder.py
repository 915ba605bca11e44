"""Pathfinder: what labels say is what can be followed, in places and in pixels; and Long Range Arena's files."""

import hashlib
import pickle
import struct
import zlib

import numpy as np
import pytest

from sbmt.errors import SbmtError
from sbmt.experiments.data import pathfinder as module
from sbmt.experiments.data.pathfinder import (
    ANTIALIAS,
    CONTRAST,
    MARGIN,
    PADDING,
    RADIUS,
    THICKNESS,
    PathfinderSettings,
    generate_images,
    pathfinder_folder,
    read_png,
)
from tests.experiments.data import pathfinder_twin as twin
from tests.experiments.data.pathfinder_layout import as_text, fields, lay_out, png
from tests.statistics import binomial_p_values

HARD = PathfinderSettings()
SMALL = PathfinderSettings(size=22, contour_length=8, seed_distance=4.0, n_distractors=2)
SINGLE = PathfinderSettings(contour_length=2, distractor_length=1, n_distractors=12)
LARGE = PathfinderSettings(size=64, seed_distance=9.0, contour_length=6, n_distractors=0)
SETTINGS = {"hard": HARD, "small": SMALL, "single": SINGLE, "large": LARGE}
N_IMAGES = 50


def made(n_images, settings, *seeds):
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seeds or [0, 0])))
    return generate_images(n_images, generator, settings)


@pytest.fixture(scope="module", params=SETTINGS.values(), ids=SETTINGS)
def drawn(request):
    """Settings, images, every paddle of each image ``(images, paddles, 2, 2)``, and whose they are."""
    settings = request.param
    images = made(N_IMAGES, settings)
    kinds = [twin.paddle_ends(kind) for kind in (images.targets, images.distractors)]
    snakes = [kind.shape[2] for kind in kinds for _ in range(kind.shape[1])]  # their numbers of paddles
    paddles = np.concatenate([kind.reshape(N_IMAGES, -1, 2, 2) for kind in kinds], axis=1)
    return settings, images, paddles, np.repeat(np.arange(len(snakes)), snakes)


def test_snakes_stay_clear_of_each_other_and_labels_say_whether_paddles_lead_from_disc_to_disc(drawn):
    settings, images, paddles, owners = drawn
    margin, thickness = MARGIN, THICKNESS
    clear = np.sqrt((margin + thickness) ** 2 - 0.25**2) - 0.01  # a paddle is looked at every half a pixel
    place = np.arange(len(owners))
    is_neighbour = (owners[:, None] == owners) & (abs(place[:, None] - place) <= 1)
    joined = []
    for segments, discs in zip(paddles, images.discs / twin.UNITS, strict=True):
        distances = twin.segment_distances(segments)
        assert distances[~is_neighbour].min() >= clear
        gaps = distances[is_neighbour & (place[:, None] < place)]
        assert gaps.size == 0 or (margin / 2**0.5 - 0.01 <= gaps.min() and gaps.max() <= margin + 0.01)
        joined.append(twin.joined(segments, distances, discs, margin + 0.01))
    assert joined == images.labels.tolist() and 10 < sum(joined) < 40
    edge = PADDING + thickness / 2 - 0.2  # and cells are a quarter of a pixel wide
    assert edge <= paddles.min() and paddles.max() <= settings.size - edge


def test_discs_are_apart_and_touch_their_own_snake_alone(drawn):
    _, images, paddles, owners = drawn
    ends = twin.paddle_ends(images.targets)
    for i, discs in enumerate(images.discs / twin.UNITS):
        for disc, at_end in zip(discs, (0, -1), strict=True):
            (snake,) = np.flatnonzero(abs(ends[i, :, at_end, at_end] - disc).max(-1) < 0.02)
            others = paddles[i, owners != snake]
            gap = twin.distance_to_segments(disc, others[:, 0], others[:, 1]).min()
            assert gap > RADIUS + THICKNESS / 2
        distance = np.hypot(*(discs[0] - discs[1]))
        assert images.marker_distances[i] == pytest.approx(distance, abs=1e-9)
        assert distance >= 2 * RADIUS + MARGIN - 0.01


@pytest.mark.statistical(share=0.001)
def test_each_of_four_pairs_of_ends_is_equally_likely(judge):
    settings = PathfinderSettings(contour_length=3, n_distractors=0)
    mine = made(4000, settings)
    ends = mine.targets.ends()
    marked = [(ends[:, :, at] == mine.discs[:, None, at]).all(-1).argmax(1) for at in (0, 1)]
    pairs = np.bincount(2 * marked[0] + marked[1], minlength=4)
    assert pairs[[0, 3]].sum() == mine.labels.sum()
    judge(binomial_p_values(pairs, 4000, 0.25), binomial_p_values(mine.labels.sum(), 4000, 0.5))


def test_pixels_are_means_of_samples(drawn):
    settings, images, paddles, _ = drawn
    differences = np.array([
        abs(twin.drawing(paddles[i], images.discs[i] / 256, settings.size) - images.pixels[i]) for i in range(20)
    ])  # fmt: skip
    # Only samples on the very rim of a paddle may fall to the other side of it.
    assert (differences > 0.51).mean() < 0.02
    levels = np.arange(ANTIALIAS**2 + 1)
    grey = round(255 * CONTRAST)
    possible = (levels[:, None] * 255 + levels * grey) / ANTIALIAS**2
    assert set(np.unique(images.pixels)) <= {int(x + 0.5) for x in possible.ravel()}
    assert images.pixels.dtype == np.uint8 and images.pixels.shape == (N_IMAGES, settings.size, settings.size)


@pytest.mark.parametrize(
    "settings",
    [
        PathfinderSettings(size=16, contour_length=60),
        PathfinderSettings(size=12, contour_length=2, n_distractors=100),
        PathfinderSettings(seed_distance=60.0),
    ],
)
def test_no_room(settings, monkeypatch):
    monkeypatch.setattr(module, "MOST_FAILURES", 300)
    with pytest.raises(SbmtError, match=r"one of \d+ attempts satisfies, got PathfinderSettings.*: shorten the snakes"):
        made(2, settings)


def test_a_folder_is_found_and_read(tmp_path, pool_of):
    """Metadata files come by number; images whose file is empty are left out."""
    folder = tmp_path / "lra_release/lra_release/pathfinder32/curv_contour_length_14"
    levels = lay_out(folder, {"10": 3, "9": 5, "100": 2})
    (folder / "imgs" / "9" / "sample_1.png").write_bytes(b"")
    source = pathfinder_folder(tmp_path)
    pool, images = pool_of(source)
    expected = levels["9"][:1] + levels["9"][2:] + levels["10"] + levels["100"]
    assert images == [(pixels.tobytes(),) for pixels in expected]
    assert pool.labels.tolist() == [0, 0, 1, 0, 0, 1, 0, 0, 1] and (pool.lengths == 1024).all()
    assert [len(x) for x in source.arrange(pool).values()] == [7, 0, 2]
    content = b""
    for name in ("9.npy", "10.npy", "100.npy"):
        file = (folder / "metadata" / name).read_bytes()
        content += f"{name} {len(file)}\n".encode() + file
    assert source.settings["metadata"] == {"n_files": 3, "sha256": hashlib.sha256(content).hexdigest()}
    (folder / "imgs" / "100" / "sample_1.png").unlink()
    with pytest.raises(SbmtError, match=r"a file .*sample_1.png, got No such file.*: correct line 2 of .*100.npy"):
        list(source.parts())


TEXT = as_text([fields("7", number, label) for number, label in [(0, 1), (5, 0), (2, 1)]])


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "content, words",
    [
        (b"", "label 0 or 1 in line 1 of .*7.npy, got nothing"),
        (TEXT.replace(b" 0 1.0", b" 2 1.0"), "label 0 or 1 in line 2 of .*7.npy, got .* 2 1.0"),
        (TEXT.replace(b"sample_5", b"../../../x"), "a file below .* in line 2 of .*7.npy"),
        (TEXT.replace(b"imgs/7 sample_5", b"/imgs sample_5"), "a file below .* in line 2 of .*7.npy"),
        (TEXT.replace(b"sample_5", b"a\0b"), "a file .*null byte"),
        (pickle.dumps([TEXT]), "UTF-8 text in .*7.npy, .*a pickle is never opened"),
    ],
)
def test_wrong_metadata_are_named_with_their_line(tmp_path, content, words):
    lay_out(tmp_path, {"7": 6})
    (tmp_path / "metadata" / "7.npy").write_bytes(content)
    with pytest.raises(SbmtError, match=words):
        list(pathfinder_folder(tmp_path).parts())


PIXELS = np.arange(1024, dtype=np.uint32).reshape(32, 32).astype(np.uint8)
COLOURS = np.repeat(PIXELS[..., None], 3, axis=2)


def read(content, folder):
    (folder / "a.png").write_bytes(content)
    return read_png(folder / "a.png", "line 4 of 7.npy")


def test_grey_levels_come_back(tmp_path):
    """Stored in any way, also as colours, or with further parts."""
    for content in (png(PIXELS), png(PIXELS, compress_level=0), png(COLOURS), png(PIXELS, dpi=(72, 72))):
        pixels = read(content, tmp_path)
        assert pixels.dtype == np.uint8 and pixels.tolist() == PIXELS.tolist()


def huge():
    """A file that says it is huge."""
    content = bytearray(png(PIXELS))
    content[16:24] = struct.pack(">II", 1 << 30, 1 << 30)
    content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    return bytes(content)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "content",
    [
        b"GIF89a" + bytes(100),
        huge(),
        png(PIXELS)[:-20],
        png(PIXELS)[:60] + b"?" + png(PIXELS)[61:],
        png(PIXELS[:, :31]),
        png(COLOURS + np.arange(3, dtype=np.uint8)),
        png(PIXELS.astype(np.uint16)),
    ],
)
def test_other_images_are_refused(tmp_path, content):
    with pytest.raises(SbmtError, match=r"grey levels .*a.png, which line 4 of 7.npy names"):
        read(content, tmp_path)
