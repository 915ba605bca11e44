"""Data files: how they are found and read, and that no archive leads the reader astray."""

import gzip
import os

import pytest

from sbmt.errors import SbmtError
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
        with pytest.raises(SbmtError, match=r"a whole gzip file .*x\.gz"), open_binary(path) as file:
            file.read()


@pytest.mark.parametrize("name", ["x.tar", "x.tar.gz"])
def test_an_archive_cut_anywhere_is_refused_or_whole(tmp_path, name):
    """Between two members too, where tarfile sees the end of the archive."""
    whole = packed(MEMBERS, "w:gz" if name.endswith("gz") else "w")
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
    for wanted in "ab":  # a link; there twice
        with pytest.raises(SbmtError, match=f"{wanted} in .* to be one file"):
            list(tar_files(path, lambda name, wanted=wanted: name.removeprefix("./") == wanted))
    assert list(tar_files(path, lambda name: name.startswith("/"))) == [("/etc/hostname", b"")]


@pytest.mark.parametrize("name, pack", [("x.txt", bytes), ("x.txt.gz", gzip.compress)])
def test_only_line_feeds_end_lines(tmp_path, name, pack):
    lines = [b"\n", b"a\xe2\x80\xa8\x0c\r\n", b"\xef\xbb\xbfmark\n", b"\n", b"end"]
    (tmp_path / name).write_bytes(pack(b"\xef\xbb\xbf" + b"".join(lines)))
    assert list(read_lines(tmp_path / name)) == lines
    assert [line.encode() for _, line in read_text(tmp_path / name)] == lines
