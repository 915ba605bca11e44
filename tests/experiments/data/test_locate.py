import gzip
import hashlib
import os

import pytest

from sbmt.errors import SbmtError
from sbmt.experiments.data import locate
from sbmt.experiments.data.locate import (
    KNOWN,
    checked_sha256,
    find_files,
    line_number,
    missing,
    open_binary,
    read_lines,
    tar_files,
)

MEMBERS = [("a/one", b"1" * 700), ("b", b""), ("a/two", b"2" * 512), ("a/three", b"\0" * 600)]


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


def test_unknown_files_pass_with_their_checksum(tmp_path):
    (tmp_path / "mine.bin").write_bytes(b"abc")
    # the value that FIPS 180-2 gives for "abc"
    assert checked_sha256(tmp_path / "mine.bin") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_name_that_the_reader_gives_comes_before_the_files_own(tmp_path):
    path = tmp_path / "cifar10_grey_test.bin.gz"
    path.write_bytes(b"mine")
    assert checked_sha256(path, "any/cifar10_grey_test.bin.gz") == hashlib.sha256(b"mine").hexdigest()
    with pytest.raises(SbmtError):
        checked_sha256(path)


def test_a_known_md5_that_fits_passes_and_gives_the_sha256(tmp_path, monkeypatch):
    monkeypatch.setitem(locate.KNOWN, "mine.bin", ("md5", "900150983cd24fb0d6963f7d28e17f72"))  # RFC 1321, "abc"
    (tmp_path / "mine.bin").write_bytes(b"abc")
    assert checked_sha256(tmp_path / "mine.bin").startswith("ba7816bf8f01cfea")
    (tmp_path / "mine.bin").write_bytes(b"abd")
    with pytest.raises(SbmtError, match="expected md5 900150983.*, got 4911e516e5aa21d3.*download it again"):
        checked_sha256(tmp_path / "mine.bin")


def test_a_file_that_cannot_be_read_is_told(tmp_path):
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(SbmtError, match="to read"):
            checked_sha256(path)
    for name in ("x", "x.gz"):
        with pytest.raises(SbmtError, match="to read .*No such file"), open_binary(tmp_path / name):
            pass


def test_the_real_files_have_their_checksums(shared_data):
    names = [name for name, (algorithm, _) in KNOWN.items() if algorithm == "sha256"]
    for name in names:
        (path,) = shared_data.rglob(name)
        assert checked_sha256(path, name) == KNOWN[name][1]


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
    packed = gzip.compress(os.urandom(300))
    wrong_checksum = packed[:-6] + bytes([packed[-6] ^ 1]) + packed[-5:]
    path = tmp_path / "x.gz"
    for content in (*(packed[:n_bytes] for n_bytes in range(1, len(packed))), wrong_checksum, b"plain", packed + b"x"):
        path.write_bytes(content)
        with pytest.raises(SbmtError, match=r"a whole gzip file .*x\.gz"), open_binary(path) as file:
            file.read()


@pytest.mark.parametrize("name", ["x.tar", "x.tar.gz"])
def test_wanted_members_are_read_in_order(tmp_path, write_tar, name):
    path = write_tar(tmp_path / name, MEMBERS)
    assert list(tar_files(path, lambda _: True)) == MEMBERS
    assert list(tar_files(path, lambda name: name.startswith("a/t"))) == MEMBERS[2:]


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


def test_what_is_no_archive_is_refused(tmp_path):
    (tmp_path / "x.tar").write_bytes(b"just some text, longer than a header" * 99)
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress(b"just some text, longer than a header" * 99))
    for name in ("x.tar", "x.tar.gz"):
        with pytest.raises(SbmtError, match="a tar archive"):
            list(tar_files(tmp_path / name, lambda _: True))


def test_a_member_that_comes_twice_is_refused(tmp_path, write_tar):
    path = write_tar(tmp_path / "x.tar", [*MEMBERS, ("./a/one", b"other")])
    with pytest.raises(SbmtError, match="a/one once in .*x.tar"):
        list(tar_files(path, lambda _: True))
    assert len(list(tar_files(path, lambda name: name != "a/one"))) == 4


def test_what_unpacks_to_too_much_is_refused(tmp_path, write_tar, monkeypatch):
    (tmp_path / "x.gz").write_bytes(gzip.compress(b"0" * 5000))
    path = write_tar(tmp_path / "x.tar.gz", [("a", b"1" * 3000), ("b", b"2" * 3000)])
    monkeypatch.setattr(locate, "MOST_UNPACKED", 4999)
    words = "to unpack to at most 4,999 bytes, got more.*unpack it: plain files"
    with pytest.raises(SbmtError, match=words), open_binary(tmp_path / "x.gz") as file:
        file.read()
    with pytest.raises(SbmtError, match=words):
        list(tar_files(path, bool))
    monkeypatch.setattr(locate, "MOST_UNPACKED", 5000)
    with open_binary(tmp_path / "x.gz") as file:
        assert len(file.read()) == 5000


def test_a_member_too_large_for_memory_is_refused_before_it_is_read(tmp_path, write_tar, monkeypatch):
    path = write_tar(tmp_path / "x.tar", MEMBERS)
    monkeypatch.setattr(locate, "MOST_IN_MEMORY", 650)
    with pytest.raises(SbmtError, match="a/one in .*x.tar to have at most 650 bytes, got 700"):
        list(tar_files(path, lambda _: True))


def test_a_link_is_refused_where_a_file_is_wanted(tmp_path, write_tar):
    path = write_tar(tmp_path / "x.tar", [("/etc/hostname", b""), ("a", None)])
    with pytest.raises(SbmtError, match="a in .* to be a file"):
        list(tar_files(path, lambda name: name == "a"))
    assert list(tar_files(path, lambda name: name != "a")) == [("/etc/hostname", b"")]


def test_members_that_point_elsewhere_write_nothing(tmp_path, write_tar, monkeypatch):
    inner = tmp_path / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    path = write_tar(inner / "x.tar", [("../up", b"1"), (f"{tmp_path}/there", b"2"), ("here", b"3")])
    assert len(list(tar_files(path, lambda _: True))) == 3
    assert os.listdir(tmp_path) == ["inner"] and os.listdir(inner) == ["x.tar"]
