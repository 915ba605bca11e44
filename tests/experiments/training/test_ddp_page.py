"""The script that the page on many devices prints: two processes report what one does."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist

ROOT = Path(__file__).parents[3]
SCRIPT = re.compile(r'^```python title="(?P<name>train_ddp\.py)"\n(?P<code>.*?)^```', re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_its_losses_do_not_depend_on_the_number_of_processes(tmp_path):
    page = (ROOT / "docs" / "how-to" / "many-gpus.md").read_text(encoding="utf-8")
    script = SCRIPT.search(page)
    (tmp_path / script["name"]).write_text(script["code"], encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", script["name"]]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr

    namespace = {}
    exec(compile(script["code"], script["name"], "exec"), namespace)
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    try:
        alone = namespace["train"]()
    finally:
        dist.destroy_process_group()
    assert len(alone) == 3 and len(set(alone)) == 3
    assert json.loads(done.stdout) == pytest.approx(alone, rel=1e-5)
