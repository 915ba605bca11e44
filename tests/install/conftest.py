"""A machine as a newcomer finds it: the files of a fresh clone, and an environment that the README alone has made."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What points to another Python or to an outer ``make``. ``INSTALL`` stays: it says how packages are installed here.
FORGET = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS")


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command to its good end, in a newcomer's environment; its words come with the failure otherwise."""
    environment = {name: value for name, value in os.environ.items() if name not in FORGET} | {"COLUMNS": "120"}
    found = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0, f"{command}\n{found.stdout}\n{found.stderr}"
    return found


def tracked_files() -> list[str]:
    """What a clone would hold after a commit of everything; skips where this is no checkout."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: what a clone would hold is not known")
    names = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).stdout.split("\0")
    return [name for name in names if name and os.path.lexists(ROOT / name)]


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tracked files as they are now, and nothing else."""
    folder = tmp_path_factory.mktemp("machine") / "sbmt"
    for name in tracked_files():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)
    return folder


@pytest.fixture(scope="session")
def demo(clone: Path) -> subprocess.CompletedProcess[str]:
    """The README's first command, which makes the environment first; trained for a moment only."""
    [commands] = re.findall(r"^## Start\n+```console\n(.*?)```", (clone / "README.md").read_text("utf-8"), re.M | re.S)
    assert commands.split("\n")[:-1] == ["make demo", "make test"]
    return run("make", "demo", "DEMO_ARGS=--steps 5 --workers 1", cwd=clone)


@pytest.fixture(scope="session")
def python(clone: Path, demo: object) -> Path:
    """Python of the environment that the README's command has made."""
    return clone / ".venv" / "bin" / "python"
