"""Two writers of one folder: the second waits for the first or gets an error; they never write at the same time."""

import threading

import pytest

from sbmt import SbmtError
from sbmt.experiments import files
from sbmt.experiments.files import only_writer

pytestmark = pytest.mark.bad_input


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


def test_a_waiting_writer_gets_the_folder_when_its_turn_comes(tmp_path, monkeypatch):
    """The first writer removes its lock: the second must not end up holding a file that is gone."""
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
