"""Long Range Arena's image files, as they should be and as they should not."""

import math
import os
import pickle
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from sbmt.errors import SbmtError
from sbmt.experiments.data.pathfinder.files import read_png, read_rows
from tests.experiments.data.layouts import Bomb
from tests.experiments.data.pathfinder.layout import as_array, as_text, fields, png

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
    assert [row.path.relative_to(tmp_path).as_posix() for row in rows] == [
        "imgs/7/sample_0.png", "imgs/7/sample_5.png", "imgs/7/sample_2.png"
    ]  # fmt: skip
    assert [row.label for row in rows] == [1, 0, 1]
    assert {(row.contour_length, row.distractor_length) for row in rows} == {(14.0, 4.0)}
    assert [row.where for row in rows] == [f"line {n} of {tmp_path / '7.npy'}" for n in (1, 2, 3)]


def test_lengths_may_be_missing(tmp_path):
    rows = rows_of(b"imgs/7 a.png 0 1\nimgs/7 b.png 0 1 1.0 nine\nimgs/7 c.png 0 1 1.0 9 3\n", tmp_path)
    assert [(row.contour_length, row.distractor_length) for row in rows[2:]] == [(9.0, 3.0)]
    assert all(math.isnan(x) for row in rows[:2] for x in (row.contour_length, row.distractor_length))


TEXT, ARRAY = as_text(ROWS), as_array(ROWS)
NEITHER = "UTF-8 text or an array of strings in .*7.npy, got something else"


@pytest.mark.parametrize(
    "content, words",
    [
        (b"", "lines in .*7.npy, got none"),
        (TEXT.replace(b" 0 1.0", b" 2 1.0"), "label 0 or 1 in line 2 of .*7.npy, got '2'"),
        (as_array([*ROWS[:2], [*ROWS[2][:3], "-1", *ROWS[2][4:]]]), "label 0 or 1 in line 3 of .*7.npy, got '-1'"),
        (TEXT + b"\n", "file, number and label in line 4 of .*7.npy, got 1 fields"),
        (TEXT.replace(b"sample_5", b"../../../x"), "a file below .* in line 2 of .*7.npy"),
        (TEXT.replace(b"imgs/7 sample_5", b"/imgs sample_5"), "a file below .* in line 2 of .*7.npy"),
        (TEXT.replace(b"sample_5", b"a\0b"), "a file below .* in line 2 of .*7.npy"),
        (TEXT + b"\xff", f"{NEITHER} .*invalid start byte"),
        (as_array(np.zeros((3, 11))), f"{NEITHER} .float64 of shape"),
        (ARRAY[:-1], NEITHER),
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


def test_metadata_that_are_no_file(tmp_path):
    os.mkfifo(tmp_path / "7.npy")
    with pytest.raises(SbmtError, match="a regular file .*7.npy, got a folder, a device or a pipe"):
        read_rows(tmp_path / "7.npy", tmp_path)


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
        (png(PIXELS[:, :31]), "32 × 32 pixels in .*a.png, which line 4 of 7.npy names, got 31 × 32"),
        (png(COLOURS), "8-bit grey levels in .*a.png, which line 4 of 7.npy names, got an image of mode RGB"),
        (png(PIXELS.astype(np.uint16)), "8-bit grey levels in .*a.png.* of mode I;16"),
        (png(GREY.convert("P")), "8-bit grey levels in .*a.png.* of mode P"),
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
