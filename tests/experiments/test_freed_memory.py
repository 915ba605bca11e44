"""Whether large tensors touch the pages of those before them again, in a process of its own."""

import platform
import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
    import resource, torch
    from sbmt.experiments.memory import keep_freed_memory

    def faults():
        \"\"\"Pages that were touched for the first time by ten pairs of tensors of 64 MiB.\"\"\"
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(10):
            tensors = [torch.ones(1 << 24) for _ in range(2)]
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    by_default = faults()
    keep_freed_memory()
    faults()
    print(by_default, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc's memory that is kept")
def test_tensors_use_the_pages_of_those_before_them():
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT)]
    by_default, kept = map(int, subprocess.check_output(command, text=True).split())
    assert kept < by_default / 100
