"""Builds the wheel and the source distribution, and offers them for download.

``on_files`` adds both under ``downloads/``, so a strict build fails on a page that links another version.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]


def on_files(files, *, config):
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "hatchling", "build", "-d", folder]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        for path in sorted(Path(folder).iterdir()):
            files.append(File.generated(config, f"downloads/{path.name}", content=path.read_bytes()))
    return files
