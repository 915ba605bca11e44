import os
import pickle
import stat
import threading
from unittest.mock import Mock

import pytest
import torch

from sbmt import SbmtError
from sbmt.experiments import files
from sbmt.experiments.files import (
    LOCK,
    check_may_write,
    check_writable,
    only_writer,
    read_file,
    read_json,
    read_tensors,
    write_bytes,
    write_json,
    write_tensors,
)


def test_tensors_come_back_bit_for_bit(tmp_path):
    tensors = {"a": torch.randn(3, 2), "b": torch.arange(4), "c": torch.tensor(1.5, dtype=torch.float64)}
    write_tensors(tmp_path / "t.safetensors", tensors)
    back = read_tensors(tmp_path / "t.safetensors")
    assert all(torch.equal(back[name], t) and back[name].dtype == t.dtype for name, t in tensors.items())


@pytest.mark.parametrize(
    "failure, told", [(OSError(28, "No space left on device"), SbmtError), (KeyboardInterrupt("x"), KeyboardInterrupt)]
)
def test_a_failed_write_leaves_the_old_file_and_no_part(tmp_path, monkeypatch, failure, told):
    write_json(tmp_path / "x.json", {"old": 1})
    monkeypatch.setattr(os, "fsync", Mock(side_effect=failure))
    with pytest.raises(told, match=str(failure.args[-1])):
        write_json(tmp_path / "x.json", {"new": 2})
    assert read_json(tmp_path / "x.json") == {"old": 1}
    assert os.listdir(tmp_path) == ["x.json"]


def test_files_have_the_mode_of_the_umask_or_keep_theirs(tmp_path):
    for umask in (0o022, 0o077):
        before = os.umask(umask)
        try:
            write_bytes(tmp_path / f"{umask}", b"content")
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / f"{umask}").stat().st_mode) == 0o666 & ~umask
    (tmp_path / "63").chmod(0o640)
    write_bytes(tmp_path / "63", b"other")
    assert stat.S_IMODE((tmp_path / "63").stat().st_mode) == 0o640


def test_a_link_is_followed(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "target")
    for content in (b"new", b"other"):
        write_bytes(tmp_path / "link", content)
        assert (tmp_path / "link").is_symlink() and (tmp_path / "deep" / "target").read_bytes() == content


def test_what_cannot_be_replaced_is_not(tmp_path):
    """A folder is recognised under any name: ``none`` does not exist, but ``none/..`` leads here."""
    (tmp_path / "deep").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("deep", "none/../deep", "none/../pipe"):
        with pytest.raises(SbmtError, match="a folder, a device or a pipe"):
            write_bytes(tmp_path / name, b"")


def test_only_our_unfinished_files_are_removed(tmp_path, monkeypatch):
    (tmp_path / ".thesis.part").touch()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "fsync", Mock(side_effect=KeyboardInterrupt))
        patch.setattr(type(tmp_path), "unlink", Mock())
        write_bytes(tmp_path / "x", b"")
    assert len(os.listdir(tmp_path)) == 2
    with only_writer(tmp_path):
        pass
    assert os.listdir(tmp_path) == [".thesis.part"]


def test_what_is_read_is_a_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    (tmp_path / "file").write_bytes(b"12345")
    assert read_file(tmp_path / "file") == b"12345"
    for name, words in (("pipe", "a regular file"), ("link", "a regular file"), ("", "a regular file"),
                        ("none", "No such file")):  # fmt: skip
        with pytest.raises(SbmtError, match=words):
            read_file(tmp_path / name)


def test_a_command_writes_only_where_nothing_of_others_is(tmp_path):
    marker, notes = tmp_path / "config.json", tmp_path / "notes.txt"
    check_may_write(tmp_path / "absent", marker)
    check_may_write(tmp_path, marker)
    (tmp_path / LOCK).touch()
    check_may_write(tmp_path, marker)  # still empty
    notes.touch()
    for path in (tmp_path, notes):
        with pytest.raises(SbmtError, match=r"or created by this command.*such as notes.txt"):
            check_may_write(path, marker)
    marker.write_bytes(b'{"mine": 1}')
    for path in (tmp_path, notes):
        check_may_write(path, marker)
        with pytest.raises(SbmtError):
            check_may_write(path, marker, b'{"format"')


def test_a_place_that_cannot_be_written_is_known_before(tmp_path):
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path, tmp_path / "pipe", tmp_path / "file" / "x.png"):
        with pytest.raises(SbmtError, match="cannot write|to be a regular file"):
            check_writable(tmp_path / "y.json", place)
    check_writable(tmp_path / "new" / "deep" / "x.png", tmp_path / "file", None)
    assert sorted(os.listdir(tmp_path)) == ["file", "pipe"]


@pytest.mark.parametrize("damage", ["missing", "truncated", "pickle"])
def test_damage_is_refused_and_no_pickle_is_loaded(tmp_path, damage):
    tensors, numbers = tmp_path / "t.safetensors", tmp_path / "x.json"
    if damage == "truncated":
        write_tensors(tensors, {"a": torch.randn(100)})
        write_json(numbers, {"a": 1})
        for path in (tensors, numbers):
            path.write_bytes(path.read_bytes()[:-4])
    elif damage == "pickle":
        for path in (tensors, numbers):
            path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(SbmtError, match=r"cannot read|the tensors in"):
        read_tensors(tensors)
    with pytest.raises(SbmtError, match=r"cannot read|the JSON in"):
        read_json(numbers)


def test_a_checksum_verifies_the_other_entries(tmp_path):
    write_json(tmp_path / "x.json", {"a": 1}, has_checksum=True)
    assert read_json(tmp_path / "x.json", has_checksum=True)["a"] == 1
    (tmp_path / "x.json").write_text((tmp_path / "x.json").read_text().replace(" 1", " 2"))
    write_json(tmp_path / "none.json", {"a": 1})
    for name in ("x.json", "none.json"):
        with pytest.raises(SbmtError, match="wrong checksum"):
            read_json(tmp_path / name, has_checksum=True)


@pytest.mark.bad_input
def test_a_folder_has_one_writer(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "PATIENCE", 0.0)
    folder = tmp_path / "a" / "b"
    with only_writer(folder):
        with pytest.raises(SbmtError, match="another process"), only_writer(folder):
            pass
        with only_writer(tmp_path / "a" / "c"):
            pass
    with only_writer(folder):
        (folder / "file").touch()
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["file"]
    with pytest.raises(SbmtError, match="cannot write into"), only_writer(folder / "file"):
        pass


@pytest.mark.bad_input
def test_a_waiting_writer_gets_the_folder_when_its_turn_comes(tmp_path, monkeypatch):
    """The first writer removes its lock, so the second must not keep a lock on a removed file."""
    first, order = threading.Event(), []

    def wait_and_write():
        first.wait()
        with only_writer(tmp_path / "a"):
            order.append("second")
            monkeypatch.setattr(files, "PATIENCE", 0.0)
            with pytest.raises(SbmtError), only_writer(tmp_path / "a"):
                pass

    waiting = threading.Thread(target=wait_and_write)
    waiting.start()
    with only_writer(tmp_path / "a"):
        first.set()
        waiting.join(0.3)
        order.append("first")
    waiting.join()
    assert order == ["first", "second"]
