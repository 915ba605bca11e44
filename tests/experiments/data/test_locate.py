"""Tests how data files are found and read, and that no archive misleads the reader."""

import gzip
import os
import tarfile

import pytest

from sbmt.errors import SbmtError
from sbmt.experiments.data import locate
from sbmt.experiments.data.locate import find_files, open_binary, read_lines, read_text, sha256_of, tar_files
from tests.experiments.data.layouts import packed

MEMBERS = [("a/one", b"1" * 700), ("b", b""), ("a/two", b"2" * 512), ("a/three", b"\0" * 600)]


def test_a_file_that_cannot_be_read_is_told(tmp_path):
    os.mkfifo(tmp_path / "pipe.gz")
    for name, words in (("absent", "No such file"), ("", "a folder, a device"), ("pipe.gz", "a device or a pipe")):
        for read in (sha256_of, lambda path: list(read_lines(path))):
            with pytest.raises(SbmtError, match=words):
                read(tmp_path / name)


def test_a_gzip_file_cut_anywhere_or_damaged_is_refused(tmp_path):
    packed = gzip.compress(os.urandom(300))
    wrong_checksum = packed[:-6] + bytes([packed[-6] ^ 1]) + packed[-5:]
    path = tmp_path / "x.gz"
    for content in (*(packed[:n_bytes] for n_bytes in range(1, len(packed))), wrong_checksum, b"plain", packed + b"x"):
        path.write_bytes(content)
        with pytest.raises(SbmtError, match=r"the gzip file .*x\.gz"), open_binary(path) as file:
            file.read()


@pytest.mark.parametrize("name", ["x.tar", "x.tar.gz"])
def test_an_archive_cut_anywhere_is_refused_or_whole(tmp_path, name):
    """Damage between two members is found, too, where tarfile would stop at the end of the archive."""
    whole = packed(MEMBERS, "w:gz" if name.endswith("gz") else "w")
    content = 512 * (4 + 2 + 0 + 1 + 2) if name == "x.tar" else len(whole) - 1  # four headers and their contents
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


def test_files_are_found_by_name_in_the_first_folder_that_holds_any(tmp_path):
    names = ["one.tsv", "two.tsv"]
    for place in ("inner", "inner/deep"):
        (tmp_path / place).mkdir()
        for name in names:
            (tmp_path / place / name).touch()
    found = {name: tmp_path / "inner" / name for name in names}
    assert find_files(tmp_path, names, ["none", "inner", "inner/deep"]) == find_files(found["one.tsv"], names) == found
    assert find_files(tmp_path, names) == find_files(tmp_path / "nowhere", names) == {}


def test_a_wanted_member_is_one_file(tmp_path):
    path = tmp_path / "x.tar"
    path.write_bytes(packed([("/etc/hostname", b""), ("a", None), ("b", b"1"), ("./b", b"2")], "w"))
    for wanted in "ab":  # a link, and a file that occurs twice
        with pytest.raises(SbmtError, match=f"one plain file {wanted} in"):
            list(tar_files(path, lambda name, wanted=wanted: name.removeprefix("./") == wanted))
    assert list(tar_files(path, lambda name: name.startswith("/"))) == [("/etc/hostname", b"")]


@pytest.mark.parametrize("name, pack", [("x.txt", bytes), ("x.txt.gz", gzip.compress)])
def test_only_line_feeds_end_lines(tmp_path, name, pack):
    lines = [b"\n", b"a\xe2\x80\xa8\x0c\r\n", b"\xef\xbb\xbfmark\n", b"\n", b"end"]
    (tmp_path / name).write_bytes(pack(b"\xef\xbb\xbf" + b"".join(lines)))
    assert list(read_lines(tmp_path / name)) == lines
    assert [line.encode() for _, line in read_text(tmp_path / name)] == lines


def header(name, size, kind=b"0"):
    """Returns a header of 512 bytes, with a size that may be negative or need more than 8 bytes."""
    sign = b"\x80" if size >= 0 else b"\xff"
    block = bytearray(tarfile.TarInfo(name).tobuf(tarfile.GNU_FORMAT))
    block[124:136], block[156:157], block[148:156] = sign + (size % 2**88).to_bytes(11), kind, b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


SPARSE = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"
STRANGE = {
    "far beyond its end": header("a", 2**87),
    "backwards": header("b", -512),  # Python 3.11.7 would never finish reading it
    "chained": header("x", 0, b"x") * 5000,
    "sparse": header("x", len(SPARSE), b"x")
    + SPARSE.ljust(512, b"\0")
    + header("a", 512)
    + b"1\nx\n".ljust(512, b"\0"),
    "a sparse file": header("a", 0, b"S"),
}


@pytest.mark.bad_input
@pytest.mark.parametrize("what", STRANGE)
def test_an_archive_with_strange_headers_is_refused(tmp_path, what):
    (tmp_path / "x.tar").write_bytes(STRANGE[what] + bytes(1024))
    with pytest.raises(SbmtError, match=r"the tar archive|one plain file"):
        list(tar_files(tmp_path / "x.tar", lambda name: name == "a"))


@pytest.mark.bad_input
def test_lines_and_contents_have_a_largest_size(tmp_path, monkeypatch):
    (tmp_path / "x.gz").write_bytes(gzip.compress(b"short\n" + b"long" * 9))
    monkeypatch.setattr(locate, "MOST_IN_LINE", 30)
    with pytest.raises(SbmtError, match="at most 30 bytes in .*line 2"):
        list(read_lines(tmp_path / "x.gz"))
    monkeypatch.setattr(locate, "MOST_BYTES", 40)
    with pytest.raises(SbmtError, match="at most 40 bytes in .*when decompressed"):
        locate.read_unpacked(tmp_path / "x.gz")
