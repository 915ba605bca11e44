"""The sampler that a page of the site registers goes through the tests of ours."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULE = re.compile(r'^```python title="(?P<name>my_\w+)\.py"\n(?P<code>.*?)^```', re.MULTILINE | re.DOTALL)
PAGES = {"add-sampler.md": "my_sampler"}
FILES = ["samplers/test_sample_edges.py", "samplers/test_laws.py::test_cells_have_their_probability"]


@pytest.mark.slow
def test_what_the_pages_register_passes(tmp_path):
    for page, name in PAGES.items():
        module = MODULE.search((ROOT / "docs" / "how-to" / page).read_text(encoding="utf-8"))
        assert module["name"] == name
        (tmp_path / f"{name}.py").write_text(module["code"], encoding="utf-8")
    files = [f"tests/{file}" for file in FILES]
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib"]  # without shape checks
    command = [sys.executable, "-m", "pytest", *options, *files, "-k", "systematic"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "SBMT_TEST_WITH": " ".join(PAGES.values())}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 18
