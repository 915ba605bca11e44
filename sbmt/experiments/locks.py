"""Locks on folders, so that only one process at a time writes into each of them."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from sbmt.errors import SbmtError
from sbmt.experiments.files import LOCK, tell_os_errors

PATIENCE = 5.0  # seconds to wait for a folder, since the workers of a killed study take a moment to end


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Locks a folder against other processes and threads that use this function.

    The system releases the lock when the process ends, so that a killed run can be resumed at once.
    """
    lock = FileLock(folder / LOCK, timeout=PATIENCE, poll_interval=0.1)
    with tell_os_errors(f"write into {folder}"):
        try:
            with suppress(FileNotFoundError):  # the previous writer may remove its folder while this one waits
                lock.acquire()
            if not lock.is_locked:
                lock.acquire()
        except Timeout:
            do = "wait for it to end, or choose another folder"
            raise SbmtError(f"another process is writing into {folder}: {do}") from None
    try:
        yield
    finally:
        with suppress(OSError):
            (folder / LOCK).unlink()  # a waiting process notices, and makes a new one
        lock.release()
