"""Places that cannot be written to, or not to the end, made without rights where that can be."""

import ctypes
import os
import resource
import struct
import subprocess
import sys
from contextlib import contextmanager

import pytest

VERSION_3 = 0x20080522
OVERRIDES = 0b110
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: who has them does what permissions forbid."""


@contextmanager
def as_one_who_heeds_permissions():
    """Root in the block is the owner of its files and no more; anybody else is that anyway."""
    if os.geteuid() != 0:
        yield
        return
    if not sys.platform.startswith("linux"):
        pytest.skip("root here does what permissions forbid")
    libc = ctypes.CDLL(None, use_errno=True)
    header = struct.pack("Ii", VERSION_3, 0)
    before = ctypes.create_string_buffer(24)
    if libc.capget(header, before) != 0:
        pytest.skip("the kernel does not tell what root may do here")
    effective, *rest = struct.unpack("6I", before.raw)
    if libc.capset(header, struct.pack("6I", effective & ~OVERRIDES, *rest)) != 0:
        pytest.skip("root may not give up rights here")
    try:
        yield
    finally:
        assert libc.capset(header, before.raw) == 0


@contextmanager
def read_only(folder):
    """A folder that nothing can be put into while the block runs."""
    mode = folder.stat().st_mode
    folder.chmod(0o555)
    try:
        with as_one_who_heeds_permissions():
            with pytest.raises(PermissionError):
                (folder / "probe").touch()
            yield
    finally:
        folder.chmod(mode)


@contextmanager
def files_of_at_most(n_bytes):
    """Longer ones cannot be written by this process while the block runs: the kernel writes what fits, then refuses."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def small_disk(folder, n_bytes):
    """A disk of its own in a folder, full after so many bytes; only root may mount one."""
    options = ["-t", "tmpfs", "-o", f"size={n_bytes}", "tmpfs"]
    try:
        subprocess.run(["mount", *options, folder], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no disk can be mounted here: {error}")
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True, capture_output=True)
