"""Locks on folders, so that only one process at a time writes into each."""

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
"""Seconds to wait for a folder: after a study is killed, its workers take a moment to end."""


@contextmanager
def only_writer(folder: Path | str | None) -> Iterator[None]:
    """Locks a folder while the block runs, against other processes and other threads that use this function.

    The lock is an ``flock`` on the folder itself. It needs no file, and the kernel releases it when the process ends,
    however that happens, so that a run that was killed can be resumed at once. A missing folder is created, and removed
    again if it is still empty at the end.

    There is no lock on Windows, nor on network file systems that lock only files, such as NFS. There, and on machines
    that share a file system but not its locks, users must give every run a folder of its own.

    Args:
        folder: The folder to lock; None locks nothing.

    Raises:
        SbmtError: If another process holds the folder, or it cannot be made.
    """
    if folder is None:
        yield
        return
    folder = Path(folder)
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
    """Returns a locked handle of the folder; None where there are no locks."""
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
        except OSError:  # removed meanwhile, or not readable; writing into it will report that
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
            os.close(handle)  # the previous holder has removed or replaced it


def _is_at(handle: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), folder.stat())
    except FileNotFoundError:
        return False
