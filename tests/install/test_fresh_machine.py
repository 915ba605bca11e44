"""Follows the README in a fresh clone: the demo runs, and the distributions can be installed and imported."""

import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

from sbmt import __version__

pytestmark = pytest.mark.install
ROOT = Path(__file__).parents[2]
# Variables that point to another Python or to an outer ``make``. ``INSTALL`` is kept: it says how to install packages.
FORGET = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS")
LOOK = """
import sys, importlib.metadata, sbmt
assert sys.prefix in sbmt.__file__, sbmt.__file__
assert sbmt.__version__ == importlib.metadata.version("sbmt")
assert not {"lightning", "typer", "matplotlib", "torchmetrics", "tokenizers"} & set(sys.modules)
"""


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command in a newcomer's environment, and checks that it succeeds; a failure shows its output."""
    environment = {name: value for name, value in os.environ.items() if name not in FORGET} | {"COLUMNS": "120"}
    found = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0, f"{command}\n{found.stdout}\n{found.stderr}"
    return found


def tracked_files() -> list[str]:
    """Returns the names of files that a clone would contain if everything was committed; skips outside a checkout."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: what a clone would hold is not known")
    names = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).stdout.split("\0")
    return [name for name in names if name and os.path.lexists(ROOT / name)]


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies the tracked files as they are now, and nothing else."""
    folder = tmp_path_factory.mktemp("machine") / "sbmt"
    for name in tracked_files():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)
    return folder


@pytest.fixture(scope="session")
def demo(clone: Path) -> subprocess.CompletedProcess[str]:
    """Runs the README's first command, which creates the environment, but trains for only a moment."""
    [commands] = re.findall(r"^## Start\n+```console\n(.*?)```", (clone / "README.md").read_text("utf-8"), re.M | re.S)
    assert commands.split("\n")[:-1] == ["make demo", "make test"]
    return run("make", "demo", "DEMO_ARGS=--steps 5 --workers 1", cwd=clone)


@pytest.fixture(scope="session")
def python(clone: Path, demo: object) -> Path:
    """Returns the Python of the environment that the README's command created."""
    return clone / ".venv" / "bin" / "python"


def test_the_first_command_trains_and_shows(demo: subprocess.CompletedProcess[str], clone: Path) -> None:
    for title in ("full attention", "SBM, fitted", "random, fitted density"):
        assert title in demo.stdout
    assert (clone / "runs" / "demo" / "demo.png").read_bytes().startswith(b"\x89PNG")
    result = json.loads((clone / "runs" / "demo" / "result.json").read_text("utf-8"))
    assert len(result["runs"]) == 4


@pytest.fixture(scope="session")
def distributions(clone: Path, python: Path) -> dict[str, Path]:
    """Returns the wheel and the source distribution, built from the clone."""
    run(python, "-m", "hatchling", "build", "-d", "dist", cwd=clone)
    [wheel], [sdist] = (clone / "dist").glob("*.whl"), (clone / "dist").glob("*.tar.gz")
    return {"wheel": wheel, "sdist": sdist}


def test_the_wheel_installs_and_imports(distributions: dict[str, Path], python: Path, tmp_path: Path) -> None:
    run(python, "-m", "venv", "--without-pip", "venv", cwd=tmp_path)
    here = tmp_path / "venv" / "bin" / "python"
    [own] = (tmp_path / "venv").glob("lib/python*/site-packages")
    [other] = python.parents[1].glob("lib/python*/site-packages")
    (own / "dependencies.pth").write_text(f"{other}\n")  # this hides the editable install of sbmt

    run(python, "-m", "pip", "--python", here, "install", "--quiet", "--no-deps", distributions["wheel"], cwd=tmp_path)
    run(here, "-I", "-c", LOOK, cwd=tmp_path)
    run(here.with_name("sbmt"), "inspect", cwd=tmp_path)  # the network in the package
    assert (tmp_path / "inspect.png").exists()


def test_the_sdist_builds_the_same_wheel(distributions: dict[str, Path], python: Path, tmp_path: Path) -> None:
    with tarfile.open(distributions["sdist"]) as sdist:
        sdist.extractall(tmp_path, filter="data")
    [source] = tmp_path.iterdir()
    run(python, "-m", "hatchling", "build", "-t", "wheel", "-d", "dist", cwd=source)
    [wheel] = (source / "dist").iterdir()
    assert wheel.read_bytes() == distributions["wheel"].read_bytes()


def test_the_wheel_holds_the_library_alone(distributions: dict[str, Path]) -> None:
    with ZipFile(distributions["wheel"]) as wheel:
        names = set(wheel.namelist())
        [metadata] = [wheel.read(name).decode() for name in names if name.endswith("METADATA")]
    assert {name.split("/")[0] for name in names} == {"sbmt", f"sbmt-{__version__}.dist-info"}
    shipped = {name for name in tracked_files() if name.startswith("sbmt/")}
    assert {name for name in names if name.startswith("sbmt/")} == shipped
    assert "sbmt/py.typed" in names
    assert f"Version: {__version__}\n" in metadata
    assert re.search(r"^License-Expression: MIT$", metadata, re.M)
