"""An attention from a module of the user's, on the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULE = """
from dataclasses import dataclass, field
from sbmt.baselines import FullAttention
from sbmt.layers import register_attention

class Scaled(FullAttention):
    def __init__(self, d_head, n_heads, *, scale=1, dropout=0.0):
        super().__init__(d_head, n_heads, dropout=dropout)
        self.scale = scale

    def forward(self, query, key, value, **more):
        return super().forward(query * self.scale, key, value, **more)

@dataclass(frozen=True)
class ScaledOptions:
    scale: int = field(default=2, metadata={"help": "what queries are multiplied by"})

register_attention("scaled", Scaled, ScaledOptions)
"""
TINY = "--length 8 --batch-size 2 --steps 2 --test-sequences 2 --d-model 4 --d-hidden 4"


def sbmt(folder, line, plugins="plugin_of_a_test"):
    environment = os.environ | {"SBMT_PLUGINS": plugins, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    command = [sys.executable, "-m", "sbmt", *line.split()]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def test_an_attention_from_outside_is_trained_and_loaded(tmp_path):
    (tmp_path / "plugin_of_a_test.py").write_text(MODULE)
    done = sbmt(tmp_path, f"train repeated-tokens --attention scaled --scale 3 {TINY} --output run")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "config.json").read_text())["options"] == {"scale": 3}
    done = sbmt(tmp_path, "evaluate run --sequences 2")
    assert done.returncode == 0, done.stderr


@pytest.mark.bad_input
def test_a_module_that_is_not_there_is_told_in_one_line(tmp_path):
    done = sbmt(tmp_path, "train --help", "no_such_module")
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "'no_such_module'" in done.stderr
