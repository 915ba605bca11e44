"""Data files: how they are found and read, and that no archive leads the reader astray."""

import gzip
import os
import tarfile

import pytest

from sbmt.errors import SbmtError
from sbmt.experiments.data import locate
from sbmt.experiments.data.locate import (
    checked_sha256,
    open_binary,
    read_lines,
    read_unpacked,
    tar_files,
)

MEMBERS = [("a/one", b"1" * 700), ("b", b""), ("a/two", b"2" * 512), ("a/three", b"\0" * 600)]


def test_a_file_that_cannot_be_read_is_told(tmp_path):
    os.mkfifo(tmp_path / "pipe.gz")
    for name, words in (("absent", "No such file"), ("", "a folder, a device"), ("pipe.gz", "a device or a pipe")):
        for read in (checked_sha256, read_unpacked, lambda path: list(read_lines(path))):
            with pytest.raises(SbmtError, match=words):
                read(tmp_path / name)


def test_a_gzip_file_cut_anywhere_or_damaged_is_refused(tmp_path):
    packed = gzip.compress(os.urandom(300))
    wrong_checksum = packed[:-6] + bytes([packed[-6] ^ 1]) + packed[-5:]
    path = tmp_path / "x.gz"
    for content in (*(packed[:n_bytes] for n_bytes in range(1, len(packed))), wrong_checksum, b"plain", packed + b"x"):
        path.write_bytes(content)
        with pytest.raises(SbmtError, match=r"a whole gzip file .*x\.gz"), open_binary(path) as file:
            file.read()


@pytest.mark.parametrize("name", ["x.tar", "x.tar.gz"])
def test_an_archive_cut_anywhere_is_refused_or_whole(tmp_path, write_tar, name):
    """Between two members too, where tarfile sees the end of the archive."""
    whole = write_tar(tmp_path / name, MEMBERS).read_bytes()
    content = 512 * (4 + 2 + 0 + 1 + 2) if name == "x.tar" else len(whole) - 1  # four headers and their content
    step = 128 if name == "x.tar" else 1
    n_refused = 0
    for n_bytes in range(0, len(whole), step):
        (tmp_path / name).write_bytes(whole[:n_bytes])
        try:
            read = list(tar_files(tmp_path / name, lambda _: True))
        except SbmtError:
            n_refused += 1
        else:
            assert read == MEMBERS and n_bytes > content
    assert n_refused >= content // step


@pytest.mark.parametrize("gap", [b"\0" * 512, b"\0" * 1024, b"x" * 512])
def test_members_after_what_is_no_member_are_not_lost_in_silence(tmp_path, write_tar, gap):
    content = write_tar(tmp_path / "x.tar", MEMBERS).read_bytes()
    (tmp_path / "x.tar").write_bytes(content[:1536] + gap + content[1536:])
    with pytest.raises(SbmtError, match="a whole tar archive"):
        list(tar_files(tmp_path / "x.tar", lambda _: True))


def test_a_wanted_member_is_one_file(tmp_path, write_tar):
    path = write_tar(tmp_path / "x.tar", [("/etc/hostname", b""), ("a", None), ("b", b"1"), ("./b", b"2")])
    for wanted in "ab":  # a link; there twice
        with pytest.raises(SbmtError, match=f"{wanted} in .* to be one file"):
            list(tar_files(path, lambda name, wanted=wanted: name.removeprefix("./") == wanted))
    assert list(tar_files(path, lambda name: name.startswith("/"))) == [("/etc/hostname", b"")]


def test_what_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    (tmp_path / "x.gz").write_bytes(gzip.compress(b"0" * 5000))
    monkeypatch.setattr(locate, "MOST_BYTES", 4999)
    with pytest.raises(SbmtError, match="at most 4,999 bytes"):
        read_unpacked(tmp_path / "x.gz")


def test_a_checksum_that_is_known_is_compared(tmp_path, monkeypatch):
    """The values that FIPS 180-2 and RFC 1321 give for "abc"."""
    monkeypatch.setitem(locate.MD5, "mine.bin", "900150983cd24fb0d6963f7d28e17f72")
    (tmp_path / "mine.bin").write_bytes(b"abc")
    sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert checked_sha256(tmp_path / "mine.bin") == sha256
    (tmp_path / "mine.bin").rename(tmp_path / "other.bin")
    assert checked_sha256(tmp_path / "other.bin") == sha256
    (tmp_path / "mine.bin").write_bytes(b"abd")
    with pytest.raises(SbmtError, match="expected md5 900150983.*, got 4911e516e5aa21d3.*download it again"):
        checked_sha256(tmp_path / "mine.bin")


@pytest.mark.parametrize("name, pack", [("x.txt", bytes), ("x.txt.gz", gzip.compress)])
def test_only_line_feeds_end_lines(tmp_path, monkeypatch, name, pack):
    lines = [b"\n", b"a\x85\x0c\r\n", b"\xef\xbb\xbfmark\n", b"\n", b"end"]
    (tmp_path / name).write_bytes(pack(b"\xef\xbb\xbf" + b"".join(lines)))
    assert list(read_lines(tmp_path / name)) == lines
    monkeypatch.setattr(locate, "MOST_IN_LINE", 8)
    with pytest.raises(SbmtError, match="lines of less than 8 bytes"):
        list(read_lines(tmp_path / name))


def header(name, size=0, kind=b"0"):
    """A header of a tar archive that may announce any size."""
    block = bytearray(tarfile.TarInfo(name).tobuf(tarfile.GNU_FORMAT))
    block[124:136], block[156:157] = b"\x80" + size.to_bytes(11, "big"), kind
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


HOSTILE = {
    "a size of 2⁸⁷": header("x", 2**87 - 512) + bytes(1024),
    "5,000 chained headers": b"".join(header("x", 4, b"L") + b"abc\0".ljust(512, b"\0") for _ in range(5000)),
    "no header": b"just some text, longer than a header" * 99,
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("name", ["x.tar", "x.tar.gz"])
def test_hostile_archives_are_refused_at_once(tmp_path, kind, name):
    (tmp_path / name).write_bytes(gzip.compress(HOSTILE[kind]) if name.endswith("gz") else HOSTILE[kind])
    for is_wanted in (lambda name: name == "a", lambda name: True):
        with pytest.raises(SbmtError, match="a whole tar archive"):
            list(tar_files(tmp_path / name, is_wanted))
