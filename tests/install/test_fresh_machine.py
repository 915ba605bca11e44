"""From the README alone: the demo runs, and the distributions install, import and bring what they need."""

import json
import re
import subprocess
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

from sbmt import __version__
from tests.install.conftest import run, tracked_files

pytestmark = pytest.mark.install
LOOK = """
import sys, importlib.metadata, sbmt
assert sys.prefix in sbmt.__file__, sbmt.__file__
assert sbmt.__version__ == importlib.metadata.version("sbmt")
assert not {"lightning", "typer", "matplotlib", "torchmetrics", "tokenizers"} & set(sys.modules)
"""


def test_the_first_command_trains_and_shows(demo: subprocess.CompletedProcess[str], clone: Path) -> None:
    for title in ("full attention", "SBM, fitted", "random, fitted density"):
        assert title in demo.stdout
    assert (clone / "runs" / "demo" / "demo.png").read_bytes().startswith(b"\x89PNG")
    result = json.loads((clone / "runs" / "demo" / "result.json").read_text("utf-8"))
    assert len(result["runs"]) == 4


@pytest.fixture(scope="session")
def distributions(clone: Path, python: Path) -> dict[str, Path]:
    """The wheel and the source distribution, built from the clone."""
    run(python, "-m", "hatchling", "build", "-d", "dist", cwd=clone)
    [wheel], [sdist] = (clone / "dist").glob("*.whl"), (clone / "dist").glob("*.tar.gz")
    return {"wheel": wheel, "sdist": sdist}


def test_the_wheel_installs_and_imports(distributions: dict[str, Path], python: Path, tmp_path: Path) -> None:
    run(python, "-m", "venv", "--without-pip", "venv", cwd=tmp_path)
    here = tmp_path / "venv" / "bin" / "python"
    [own] = (tmp_path / "venv").glob("lib/python*/site-packages")
    [other] = python.parents[1].glob("lib/python*/site-packages")
    (own / "dependencies.pth").write_text(f"{other}\n")  # their editable install of sbmt is not seen through this

    run(python, "-m", "pip", "--python", here, "install", "--quiet", "--no-deps", distributions["wheel"], cwd=tmp_path)
    run(here, "-I", "-c", LOOK, cwd=tmp_path)
    run(here.with_name("sbmt"), "inspect", cwd=tmp_path)  # the network that is shipped
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
