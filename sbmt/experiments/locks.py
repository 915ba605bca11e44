"""Locks on folders, so that only one process at a time writes into each."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from sbmt.errors import SbmtError
from sbmt.experiments.files import LOCK, remove_empty, tell_os_errors

PATIENCE = 5.0
"""Seconds to wait for a folder: after a study is killed, its workers take a moment to end."""


@contextmanager
def only_writer(folder: Path | str | None) -> Iterator[None]:
    """Locks a folder, unless it is None, against other processes and threads that use this function.

    The system releases the lock when the process ends, however that happens, so that a run that was killed can be
    resumed at once. A missing folder is created, and removed again if it is still empty at the end.
    """
    if folder is None:
        yield
        return
    folder = Path(folder)
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    with tell_os_errors(f"to write into {folder}"):
        lock = _acquire(folder)
    try:
        yield
    finally:
        with suppress(OSError):
            (folder / LOCK).unlink()  # whoever waits for it will notice, and make a new one
        lock.release()
        remove_empty(made)


def _acquire(folder: Path) -> FileLock:
    lock, end = FileLock(folder / LOCK), time.monotonic() + PATIENCE
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=max(0.0, end - time.monotonic()), poll_interval=0.1)
            return lock
        except FileNotFoundError:  # the previous writer has removed its empty folder
            continue
        except Timeout:
            do = "wait for it to end, or name another folder"
            raise SbmtError(f"to be the only process that writes into {folder}", "another", do) from None
