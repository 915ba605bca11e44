"""An attention from a module of the user's, on the command line."""

import json
import os
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

COMMANDS = """
import sys
from sbmt.experiments.cli import main

for line in sys.argv[1:]:
    sys.argv = ["sbmt", *line.split()]
    try:
        main()
    except SystemExit as leaving:
        if leaving.code:
            raise
"""


def run(folder, *command, plugins="plugin_of_a_test"):
    environment = os.environ | {"SBMT_PLUGINS": plugins, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )


def test_an_attention_from_outside_is_trained_and_evaluated(tmp_path, monkeypatch):
    """The process that measures memory is a new one, which has to load the plugin too."""
    (tmp_path / "plugin_of_a_test.py").write_text(MODULE)
    monkeypatch.setenv("SBMT_CACHE", str(tmp_path / "cache"))
    prepare(toy_source("listops", name=REDUCED["listops"].data_name), tmp_path / "cache")
    tiny = "--length 20 --batch-size 8 --steps 2 --warmup-steps 1 --eval-every 2 --d-model 8 --d-hidden 8 --scale 3"
    done = run(
        tmp_path,
        "-c",
        COMMANDS,
        f"train listops --reduced --attention scaled {tiny} --output trained",
        "evaluate trained",
    )
    assert done.returncode == 0, done.stderr
    trained = json.loads((tmp_path / "trained" / "result.json").read_text())
    assert trained["config"]["options"] == {"scale": 3}
    assert f"accuracy {trained['test']['accuracy']:.4f}" in done.stdout


@pytest.mark.bad_input
def test_a_missing_module_is_reported_in_one_line(tmp_path):
    done = run(tmp_path, "-m", "sbmt", "train", "--help", plugins="no_such_module")
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "'no_such_module'" in done.stderr
