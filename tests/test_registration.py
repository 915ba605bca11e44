"""Tests a user's attention mechanism on the command line, and a user's sampler in the library's tests."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sbmt.experiments.data.prepared import prepare
from sbmt.experiments.training.tasks import REDUCED
from tests.experiments.data.toy import toy_source

ROOT = Path(__file__).parents[1]
MODULE = """
from sbmt.baselines import FullAttention
from sbmt.layers import register_attention

class Scaled(FullAttention):
    def __init__(self, d_head, n_heads, *, scale=1, dropout=0.0):
        super().__init__(d_head, n_heads, dropout=dropout)
        self.scale = scale

    def forward(self, query, key, value, **more):
        return super().forward(query * self.scale, key, value, **more)

register_attention("scaled", Scaled)
"""


def run(folder, line, plugins="plugin_of_a_test"):
    environment = os.environ | {"SBMT_PLUGINS": plugins, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    command = [sys.executable, "-m", "sbmt", *line.split()]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def test_an_attention_from_outside_is_trained_and_evaluated(tmp_path, monkeypatch):
    """Memory is measured in a new process, which also has to load the plugin."""
    (tmp_path / "plugin_of_a_test.py").write_text(MODULE)
    monkeypatch.setenv("SBMT_CACHE", str(tmp_path / "cache"))
    prepare(toy_source("listops", name=REDUCED["listops"].data_name), tmp_path / "cache")
    tiny = "--length 20 --batch-size 8 --steps 2 --warmup-steps 1 --eval-every 2 --d-model 8 --d-hidden 8 --scale 3"
    for line in (f"train listops --reduced --attention scaled {tiny} --output trained", "evaluate trained"):
        done = run(tmp_path, line)
        assert done.returncode == 0, done.stderr
    trained = json.loads((tmp_path / "trained" / "result.json").read_text())
    assert trained["config"]["options"] == {"scale": 3}
    assert f"accuracy {trained['test']['accuracy']:.4f}" in done.stdout


@pytest.mark.bad_input
def test_a_missing_module_is_reported_in_one_line(tmp_path):
    done = run(tmp_path, "train --help", plugins="no_such_module")
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "'no_such_module'" in done.stderr


BLOCK = re.compile(r'^```python title="(?P<name>my_\w+)\.py"\n(?P<code>.*?)^```', re.MULTILINE | re.DOTALL)
PAGES = {"add-sampler.md": "my_sampler"}
FILES = ["samplers/test_sample_edges.py", "samplers/test_laws.py::test_cells_have_their_probability"]


@pytest.mark.slow
def test_what_the_pages_register_passes(tmp_path):
    for page, name in PAGES.items():
        module = BLOCK.search((ROOT / "docs" / "how-to" / page).read_text(encoding="utf-8"))
        assert module["name"] == name
        (tmp_path / f"{name}.py").write_text(module["code"], encoding="utf-8")
    files = [f"tests/{file}" for file in FILES]
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib"]  # without shape checks
    command = [sys.executable, "-m", "pytest", *options, *files, "-k", "systematic"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "SBMT_TEST_WITH": " ".join(PAGES.values())}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 18
