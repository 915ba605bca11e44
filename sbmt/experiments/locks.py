"""A folder that one process at a time writes into."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sbmt.errors import SbmtError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PATIENCE = 5.0
"""Seconds to wait for a folder: the workers of a study that was killed leave a moment after it."""


@contextmanager
def only_writer(folder: Path | None) -> Iterator[None]:
    """Keeps other processes that ask for the same folder out of it while the block runs, and other threads too.

    What is held is the folder itself, by ``flock``: no file is needed, and the kernel lets go when the process ends,
    however it ends, so that a run that was killed can be taken up at once. The folder is made if it is not there, and
    removed again if nothing was put into it.

    Nothing is held where there are no such locks: on Windows, and on network file systems that know them for files
    alone, as NFS does. There, and on machines that share a file system without sharing locks, it is up to the user to
    give every run a folder of its own.

    Args:
        folder: None holds nothing.

    Raises:
        SbmtError: If another process holds the folder, or it cannot be made.
    """
    if folder is None:
        yield
        return
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    handle = _hold(folder, time.monotonic() + PATIENCE)
    try:
        yield
    finally:
        with suppress(OSError):  # the first that is not empty
            for place in made:
                place.rmdir()
        if handle is not None:
            os.close(handle)


def _hold(folder: Path, end: float) -> int | None:
    """A handle of the folder, locked; None where there are no locks."""
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = error.strerror or error
            raise SbmtError(f"to write into {folder}", reason, "choose a folder with room and rights") from error
        if fcntl is None:
            return None
        try:
            handle = os.open(folder, os.O_RDONLY)
        except OSError:  # gone again, or not ours to read: who writes there is told
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            if time.monotonic() > end:
                do = "wait for it to end, or name another folder"
                raise SbmtError(f"to be the only process that writes into {folder}", "another", do) from None
            time.sleep(0.1)
        except OSError:  # no locks on this file system
            os.close(handle)
            return None
        else:
            if _is_at(handle, folder):
                return handle
            os.close(handle)  # its last holder has removed or replaced it


def _is_at(handle: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), folder.stat())
    except FileNotFoundError:
        return False
