"""Pathfinder: what labels say is what can be followed, in places and in pixels; and Long Range Arena's files."""

import hashlib
import pickle
import shutil
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

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
    read_rows,
)
from tests.experiments.data import pathfinder_twin as twin
from tests.experiments.data.layouts import Bomb
from tests.experiments.data.pathfinder_layout import as_array, as_text, fields, lay_out, png
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


def test_turns(drawn):
    _, images, *_ = drawn
    angles = images.targets.directions * (2 * np.pi / 64)
    turns = abs(np.angle(np.exp(1j * np.diff(angles, axis=-1))))
    assert turns.max() < np.pi / 2 + 1e-9
    total = turns.sum(-1)  # (images, snakes)
    ends = twin.paddle_ends(images.targets)
    marked = [abs(ends[:, :, at, at] - images.discs[:, None, at] / 256).max(-1).argmin(1) for at in (0, -1)]
    assert ((marked[0] == marked[1]) == images.labels).all()
    assert np.allclose(images.turns, sum(np.take_along_axis(total, m[:, None], 1)[:, 0] for m in marked) / 2)


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


@pytest.mark.parametrize("write", [as_text, as_array], ids=["text", "array"])
def test_a_folder_is_found_and_read(tmp_path, pool_of, write):
    folder = tmp_path / "lra_release/lra_release/pathfinder32/curv_contour_length_14"
    levels = lay_out(folder, {"10": 3, "9": 4, "100": 2}, write)
    source = pathfinder_folder(tmp_path, 5)
    pool, images = pool_of(source)
    expected = levels["9"] + levels["10"] + levels["100"]
    assert images == [(pixels.tobytes(),) for pixels in expected]
    assert pool.labels.tolist() == [0, 1, 0, 1, 0, 1, 0, 0, 1] and (pool.lengths == 1024).all()
    assert [len(x) for x in source.arrange(pool).values()] == [7, 0, 2]
    content = b""
    for name in ("9.npy", "10.npy", "100.npy"):
        file = (folder / "metadata" / name).read_bytes()
        content += f"{name} {len(file)}\n".encode() + file
    assert source.settings == {
        "difficulty": "curv_contour_length_14",
        "size": 32,
        "metadata": {"n_files": 3, "sha256": hashlib.sha256(content).hexdigest()},
        "seed": 5,
    }


def test_empty_images_are_left_out(tmp_path, pool_of):
    levels = lay_out(tmp_path, {"1": 4, "2": 2})
    for name in ("1/sample_0.png", "1/sample_2.png", "2/sample_0.png", "2/sample_1.png"):
        (tmp_path / "imgs" / name).write_bytes(b"")
    source = pathfinder_folder(tmp_path)
    pool, images = pool_of(source)
    assert images == [(levels["1"][i].tobytes(),) for i in (1, 3)] and pool.labels.tolist() == [1, 1]


@pytest.mark.bad_input
def test_what_is_not_there_or_damaged_is_named(tmp_path):
    with pytest.raises(SbmtError, match="folders imgs and metadata in .*, got none"):
        pathfinder_folder(tmp_path)
    lay_out(tmp_path, {"1": 3})
    for wrong, words in ((dict(seed=-1), "seed in"), (dict(size=0), "size ≥ 1")):
        with pytest.raises(SbmtError, match=words):
            pathfinder_folder(tmp_path, **wrong)
    source = pathfinder_folder(tmp_path)
    (tmp_path / "imgs" / "1" / "sample_2.png").write_bytes(png(np.zeros((32, 32), np.uint8))[:-20])
    with pytest.raises(SbmtError, match=r"a whole PNG file .*sample_2.png, which line 3 of .*1.npy names, got damage"):
        list(source.parts())
    (tmp_path / "imgs" / "1" / "sample_1.png").unlink()
    with pytest.raises(SbmtError, match=r"a file .*sample_1.png, got No such file.*: correct line 2 of .*1.npy"):
        list(source.parts())
    shutil.rmtree(tmp_path / "metadata")
    (tmp_path / "metadata").mkdir()
    with pytest.raises(SbmtError, match="folders imgs and metadata in .*, got none"):
        pathfinder_folder(tmp_path)


ROWS = [fields("7", number, label) for number, label in [(0, 1), (5, 0), (2, 1)]]
PIXELS = np.arange(1024, dtype=np.uint32).reshape(32, 32).astype(np.uint8)


def rows_of(content, folder):
    (folder / "7.npy").write_bytes(content)
    return read_rows(folder / "7.npy", folder)


GOOD = {
    "text": as_text(ROWS),
    "text that editors have changed": as_text(ROWS)[:-1].replace(b"\n", b"\r\n"),
    "array": as_array(ROWS),
    "array of bytes": as_array(np.array(ROWS, dtype="S")),
    "array of the other byte order": as_array(np.array(ROWS).astype(">U20")),
    "array of columns": as_array(np.asfortranarray(np.array(ROWS))),
}


@pytest.mark.parametrize("kind", GOOD)
def test_every_kind_of_metadata_says_the_same(tmp_path, kind):
    rows = rows_of(GOOD[kind], tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for _, path, _ in rows] == [
        "imgs/7/sample_0.png", "imgs/7/sample_5.png", "imgs/7/sample_2.png"
    ]  # fmt: skip
    assert [label for *_, label in rows] == [1, 0, 1]
    assert [where for where, *_ in rows] == [f"line {n} of {tmp_path / '7.npy'}" for n in (1, 2, 3)]


TEXT, ARRAY = as_text(ROWS), as_array(ROWS)
NEITHER = "UTF-8 text or an array of strings in .*7.npy, got something else"


@pytest.mark.parametrize(
    "content, words",
    [
        (b"", "label 0 or 1 in line 1 of .*7.npy, got nothing"),
        (TEXT.replace(b" 0 1.0", b" 2 1.0"), "label 0 or 1 in line 2 of .*7.npy, got .* 2 1.0"),
        (as_array([*ROWS[:2], [*ROWS[2][:3], "-1", *ROWS[2][4:]]]), "label 0 or 1 in line 3 of .*7.npy, got .* -1 1.0"),
        (TEXT + b"\n", "file, number and label .* in line 4 of .*7.npy, got nothing"),
        (TEXT.replace(b"sample_5", b"../../../x"), "a file below .* in line 2 of .*7.npy"),
        (TEXT.replace(b"imgs/7 sample_5", b"/imgs sample_5"), "a file below .* in line 2 of .*7.npy"),
        (TEXT.replace(b"sample_5", b"a\0b"), "a file below .* in line 2 of .*7.npy"),
        (TEXT + b"\xff", f"{NEITHER} .*invalid start byte"),
        (as_array(np.zeros((3, 11))), "label 0 or 1 in line 1 of .*7.npy, got 0.0"),
        (ARRAY[:-1], NEITHER),
        (ARRAY[:-4] + b"\xff\xff\xff\x7f", NEITHER),  # code points beyond Unicode
        (ARRAY.replace("sample_5".encode("utf-32-le"), b"\x00\x00\x11\x00" * 8), NEITHER),
        (ARRAY.replace(b"(3, 11)", b"(3, 99)"), NEITHER),
    ],
)
def test_wrong_metadata_are_named_with_their_line(tmp_path, content, words):
    with pytest.raises(SbmtError, match=words):
        rows_of(content, tmp_path)


@pytest.mark.parametrize("kind", ["array", "pickle"])
def test_nothing_is_unpickled(tmp_path, kind):
    trap, trace = Bomb(tmp_path / "trace"), tmp_path / "trace"
    objects = np.array([[*ROWS[0][:-1], trap]], dtype=object)
    with pytest.raises(SbmtError, match=f"{NEITHER}.*a pickle can run code .*np.save"):
        rows_of(pickle.dumps([trap]) if kind == "pickle" else as_array(objects, allow_pickle=True), tmp_path)
    assert not trace.exists()
    pickle.loads(pickle.dumps(trap))
    assert trace.exists()  # the trap works


def read(content, folder):
    (folder / "a.png").write_bytes(content)
    return read_png(folder / "a.png", 32, "line 4 of 7.npy")


def test_grey_levels_come_back(tmp_path):
    """Stored in any way, also as colours, or with further parts."""
    colours = np.repeat(PIXELS[..., None], 3, axis=2)
    for content in (png(PIXELS), png(PIXELS, compress_level=0), png(colours), png(PIXELS, dpi=(72, 72))):
        pixels = read(content, tmp_path)
        assert pixels.dtype == np.uint8 and pixels.tolist() == PIXELS.tolist()
    assert read(b"", tmp_path) is None


COLOURS = np.repeat(PIXELS[..., None], 3, axis=2)
COLOURS[31, 31, 2] ^= 1
GREY = Image.fromarray(PIXELS)


def bomb(width, height):
    """A file that says it is huge."""
    content = bytearray(png(PIXELS))
    content[16:24] = struct.pack(">II", width, height)
    content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    return bytes(content)


DAMAGED = "a whole PNG file .*a.png, which line 4 of 7.npy names, got damage"


@pytest.mark.parametrize(
    "content, words",
    [
        (b"GIF89a" + bytes(100), DAMAGED),
        (bomb(1 << 30, 1 << 30), DAMAGED),
        (png(PIXELS)[:33] + png(PIXELS)[-12:], DAMAGED),  # no image data
        (png(PIXELS[:, :31]), "32 × 32 grey levels .*a.png, which line 4 of 7.npy names, got 31 × 32"),
        (png(COLOURS), "grey levels .*a.png, which line 4 of 7.npy names, got .* of mode RGB"),
        (png(PIXELS.astype(np.uint16)), "grey levels .*a.png.* of mode I;16"),
        (png(GREY.convert("P")), "grey levels .*a.png.* of mode P"),
    ],
)
def test_other_images_are_refused(tmp_path, content, words):
    with pytest.raises(SbmtError, match=words):
        read(content, tmp_path)


def test_a_file_cut_or_changed_anywhere_is_damage(tmp_path):
    """Unless only the length or the checksum of the last part, which is empty, is affected."""
    whole = png(PIXELS[:8, :8])
    cut = [whole[:size] for size in range(1, len(whole))]
    changed = [bytes([*whole[:i], whole[i] ^ 0x10, *whole[i + 1 :]]) for i in range(len(whole))]
    n_told = 0
    for content in cut + changed:
        (tmp_path / "a.png").write_bytes(content)
        try:
            assert read_png(tmp_path / "a.png", 8, "line 4 of 7.npy").tolist() == PIXELS[:8, :8].tolist()
        except SbmtError as error:
            assert "a.png, which line 4 of 7.npy names" in str(error)
            n_told += 1
    assert n_told >= 2 * len(whole) - 1 - (4 + 8)
