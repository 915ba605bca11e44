"""Two processes that would write into one folder: the second is told, or waits for the first; never both write."""

import shutil
import signal
import threading

import pytest

from sbmt import SbmtError
from sbmt.experiments import locks
from sbmt.experiments.locks import only_writer
from tests.faults.commands import TRAINING, WRITING, make_qnli
from tests.faults.processes import signal_at, start, state_of
from tests.faults.wholeness import files_below, has_same_numbers

pytestmark = pytest.mark.bad_input


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(locks, "PATIENCE", 0.0)


@pytest.mark.usefixtures("impatient")
def test_a_folder_has_one_writer(tmp_path):
    folder = tmp_path / "a" / "b"
    with only_writer(folder):
        with pytest.raises(SbmtError, match="only process"), only_writer(folder):
            pass
        with only_writer(tmp_path / "a" / "c"):
            pass
        (folder / "file").touch()
    with only_writer(folder):
        pass
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "b", "file"]


def test_folders_that_stay_empty_are_not_left(tmp_path):
    with only_writer(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b").is_dir()
    assert list(tmp_path.iterdir()) == []
    with only_writer(None):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(SbmtError, match="to write into"), only_writer(tmp_path / "file"):
        pass


@pytest.mark.usefixtures("impatient")
def test_an_error_lets_go(tmp_path):
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt), only_writer(tmp_path / "a"):
            raise KeyboardInterrupt


def test_who_waits_gets_the_folder_that_is_there_then(tmp_path, monkeypatch):
    """The first holder removes what it held: who waited for that must not hold what nobody else can find."""
    first, order = threading.Event(), []

    def wait_and_write():
        first.wait()
        with only_writer(tmp_path / "a"):
            order.append("second")
            (tmp_path / "a" / "file").touch()
            monkeypatch.setattr(locks, "PATIENCE", 0.0)
            with pytest.raises(SbmtError), only_writer(tmp_path / "a"):
                pass

    waiting = threading.Thread(target=wait_and_write)
    waiting.start()
    with only_writer(tmp_path / "a"):
        first.set()
        waiting.join(0.3)
        order.append("first")
    waiting.join()
    assert order == ["first", "second"] and (tmp_path / "a" / "file").exists()


def test_without_locks_all_goes_on(tmp_path, monkeypatch):
    """As on Windows, or where a file system has none for folders."""
    with monkeypatch.context() as patch:
        patch.setattr(locks, "fcntl", None)
        with only_writer(tmp_path / "a"), only_writer(tmp_path / "a"):
            pass

    def refuse(*_):
        raise OSError(9, "Bad file descriptor")

    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    with only_writer(tmp_path / "a"), only_writer(tmp_path / "a"):
        pass


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "name", [*(f"train {name}" for name in TRAINING), "demo", "study", "sweep", "glue", "data prepare"]
)
def test_a_command_does_not_write_where_another_does(here, command_line, name):
    make_qnli(here)
    part = {"sweep": "new/listops", "glue": "new/mlm", "data prepare": "cache/.qnli.part"}.get(name, "new")
    before = files_below(here)
    with only_writer(here / part):
        code, _, err = command_line(WRITING[name])
    assert code == 2 and err.count("\n") == 1 and f"into {part}" in err.replace(f"{here}/", ""), err
    assert files_below(here) == before
    if name in ("train repeated", "data prepare"):
        assert command_line(WRITING[name])[0] == 0


@pytest.mark.usefixtures("impatient")
def test_a_run_that_lasts_is_not_gone_on_with(here, command_line):
    for name, line in TRAINING.items():
        before = files_below(here / f"{name}-begun")
        with only_writer(here / f"{name}-begun"):
            code, _, err = command_line(f"{line} --output {name}-begun --resume")
        assert code == 2 and "only process" in err
        assert files_below(here / f"{name}-begun") == before


def test_of_two_that_train_in_one_folder_one_ends_well(here, impatient, command_line):
    """The first is halted before its first step; it then goes on as if nothing had been."""
    line = WRITING["train repeated"]
    first = start(line, here, prepare=signal_at, given=("sbmt.experiments.training.fit", "_Loaders", 0, signal.SIGSTOP))
    first.wait_for(lambda: state_of(first.group) == "T")
    code, _, err = command_line(line)
    assert code == 2 and "only process" in err
    first.send(signal.SIGCONT)
    assert first.end() == 0
    assert has_same_numbers(here / "new", here / "repeated")


def test_of_two_that_prepare_the_same_the_second_waits_and_takes_what_is_there(here, command_line):
    line = WRITING["data prepare corpus"]
    processes = [start(line, here) for _ in range(2)]
    assert [process.end() for process in processes] == [0, 0], [process.err for process in processes]
    both = files_below(here / "cache")
    shutil.rmtree(here / "cache" / "corpus-reduced")
    assert command_line(line)[0] == 0
    assert files_below(here / "cache") == both
