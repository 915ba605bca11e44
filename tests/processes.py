"""Runs Python in another process."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run_python(code, **changes):
    """Returns the lines that ``code`` prints in a new interpreter. None removes an environment variable."""
    environment = {name: value for name, value in (os.environ | changes).items() if value is not None}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
