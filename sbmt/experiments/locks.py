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
    path = folder / LOCK
    lock = FileLock(path, timeout=PATIENCE, poll_interval=0.1)
    with tell_os_errors(f"write into {folder}"):
        if path.exists() and path.stat().st_size:  # ours are empty
            raise SbmtError(f"cannot lock {folder}: move its file {LOCK} away, or choose another folder")
        for is_first in (True, False):  # the previous writer may remove its folder while this one waits
            try:
                folder.mkdir(parents=True, exist_ok=True)
                lock.acquire()
                break
            except FileNotFoundError:
                if not is_first:
                    raise
            except Timeout:
                do = "wait for it to end, or choose another folder"
                raise SbmtError(f"another process is writing into {folder}: {do}") from None
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()  # a waiting process notices, and makes a new one
        lock.release()
