"""Data files are found, compared with their checksums, and read whole or not at all."""

import gzip
import os

import pytest

from sbmt.errors import SbmtError
from sbmt.experiments.data import locate
from sbmt.experiments.data.locate import (
    checked_sha256,
    find_files,
    line_number,
    missing,
    open_binary,
    read_lines,
    tar_files,
)

MEMBERS = [("a/one", b"1" * 700), ("b", b""), ("a/two", b"2" * 512), ("a/three", b"\0" * 600)]
ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # what FIPS 180-2 gives for "abc"


def test_files_are_found_in_the_first_place_that_has_any(tmp_path):
    for name in ("inner/x", "inner/y", "later/x", "later/y", "later/z", "inner/stranger"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    names, inner = ["x", "y", "z", "later"], {"x": tmp_path / "inner" / "x", "y": tmp_path / "inner" / "y"}
    assert find_files(tmp_path, names, ["absent", "inner", "later"]) == inner
    assert find_files(tmp_path, names) == {}  # where "later" is a folder
    assert find_files(tmp_path / "inner" / "y", names) == inner  # a file brings those beside it,
    assert find_files(tmp_path / "inner" / "stranger", names) == {}  # if it is one of them


@pytest.mark.parametrize(
    "folder, found, got",
    [("", {}, "got none of them"), ("", {"y"}, "got only y"), ("absent", {}, "got no such file or folder")],
)
def test_what_is_missing_is_told_with_what_to_do(tmp_path, folder, found, got):
    message = str(missing(["x", "y"], tmp_path / folder, found, "download https://example.org/x"))
    assert f"expected x, y in {tmp_path / folder}" in message and got in message
    assert all(word in message for word in ("https://example.org/x", "$SBMT_DATA", "--from"))


def test_known_files_are_compared_with_their_checksums(tmp_path, monkeypatch):
    path = tmp_path / "mine.bin"
    path.write_bytes(b"abc")
    assert checked_sha256(path) == ABC
    monkeypatch.setitem(locate.KNOWN, "mine.bin", ("md5", "900150983cd24fb0d6963f7d28e17f72"))  # RFC 1321, "abc"
    assert checked_sha256(path) == ABC
    path.write_bytes(b"abd")
    with pytest.raises(SbmtError, match="expected md5 900150983.*, got 4911e516e5aa21d3.*download it again"):
        checked_sha256(path)
    checked_sha256(path, "any/mine.bin")  # the reader's name for it comes before its own


def test_a_file_that_cannot_be_read_is_told(tmp_path):
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(SbmtError, match="to read"):
            checked_sha256(path)
    for name in ("x", "x.gz"):
        with pytest.raises(SbmtError, match="to read .*No such file"), open_binary(tmp_path / name):
            pass


@pytest.mark.parametrize("name, pack", [("x.txt", bytes), ("x.txt.gz", gzip.compress)])
def test_lines_are_read_in_parts(tmp_path, name, pack):
    """Each once, by the part in which it starts, with the number of its place; the last one need not end."""
    lines = [b"\n", b"a\x85\x0c\r\n", b"\xef\xbb\xbfmark\n", b"\n", b"end"]
    (tmp_path / name).write_bytes(pack(b"\xef\xbb\xbf" + b"".join(lines)))
    for size in (1, 2, 5, 99):
        parts = [list(read_lines(tmp_path / name, start, start + size)) for start in range(0, 30, size)]
        assert [line for part in parts for _, line in part] == lines
        offsets = [offset for part in parts for offset, _ in part]
        assert [line_number(tmp_path / name, offset) for offset in offsets] == [1, 2, 3, 4, 5]


def test_a_gzip_file_cut_anywhere_or_damaged_is_refused(tmp_path):
    packed = gzip.compress(os.urandom(100))
    wrong_checksum = packed[:-6] + bytes([packed[-6] ^ 1]) + packed[-5:]
    path = tmp_path / "x.gz"
    for content in (*(packed[:n_bytes] for n_bytes in range(1, len(packed))), wrong_checksum, b"plain", packed + b"x"):
        path.write_bytes(content)
        with pytest.raises(SbmtError, match=r"a whole gzip file .*x\.gz"), open_binary(path) as file:
            file.read()


@pytest.mark.parametrize("name", ["x.tar", "x.tar.gz"])
def test_wanted_members_are_read_in_order_and_an_archive_cut_anywhere_is_refused(tmp_path, write_tar, name):
    """Also where it is cut between two members, where tarfile sees the end of the archive."""
    path = write_tar(tmp_path / name, MEMBERS)
    assert list(tar_files(path, lambda _: True)) == MEMBERS
    assert list(tar_files(path, lambda name: name.startswith("a/t"))) == MEMBERS[2:]
    whole = path.read_bytes()
    content = 512 * (4 + 2 + 0 + 1 + 2) if name == "x.tar" else len(whole) - 1  # four headers and their content
    for n_bytes in range(0, content + 1, 128 if name == "x.tar" else 3):
        path.write_bytes(whole[:n_bytes])
        with pytest.raises(SbmtError, match=name):
            list(tar_files(path, lambda _: True))


@pytest.mark.parametrize("gap", [b"\0" * 512, b"\0" * 1024, b"x" * 512])
def test_members_after_what_is_no_member_are_not_lost_in_silence(tmp_path, write_tar, gap):
    content = write_tar(tmp_path / "x.tar", MEMBERS).read_bytes()
    (tmp_path / "x.tar").write_bytes(content[:1536] + gap + content[1536:])
    with pytest.raises(SbmtError, match="a whole tar archive"):
        list(tar_files(tmp_path / "x.tar", lambda _: True))


def test_members_that_are_no_single_file_are_refused_where_they_are_wanted(tmp_path, write_tar):
    path = write_tar(tmp_path / "x.tar", [("/etc/hostname", b""), ("link", None), ("a", b"1"), ("./a", b"2")])
    for wanted, words in (("link", "link in .* to be a file"), ("a", "a once in .*x.tar, got two")):
        with pytest.raises(SbmtError, match=words):
            list(tar_files(path, lambda name, wanted=wanted: name.endswith(wanted)))
    assert list(tar_files(path, lambda name: name.startswith("/"))) == [("/etc/hostname", b"")]


def test_what_is_no_archive_is_refused(tmp_path):
    (tmp_path / "x.tar").write_bytes(b"just some text, longer than a header" * 99)
    with pytest.raises(SbmtError, match="a tar archive"):
        list(tar_files(tmp_path / "x.tar", lambda _: True))
