"""Writes that fail, one after the other, until a command has come through."""

import errno
import itertools
import os

FULL = OSError(errno.ENOSPC, "No space left on device")


def fail_from(patch, number, error):
    """The write of that number, counted from 0, fails, and all that come after it; returns the writes tried."""
    fsync, tried = os.fsync, []

    def failing(handle):
        tried.append(handle)
        if len(tried) > number:
            raise error
        fsync(handle)

    patch.setattr(os, "fsync", failing)
    return tried


def until_done(monkeypatch, call, error, check):
    """Calls while ever later writes fail, until none does; ``check`` is given what each failed call returned.

    Returns how many calls it took, and what the last of them returned.
    """
    for number in itertools.count():
        with monkeypatch.context() as patch:
            tried = fail_from(patch, number, error)
            found = call()
        if len(tried) <= number:
            return number, found
        check(found)
