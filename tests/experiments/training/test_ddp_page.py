"""The script that the page on many devices prints: two processes report what one does."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = re.compile(r'^```python title="train_ddp\.py"\n(.*?)^```', re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_its_losses_do_not_depend_on_the_number_of_processes(tmp_path):
    page = (ROOT / "docs" / "how-to" / "many-gpus.md").read_text(encoding="utf-8")
    (tmp_path / "train_ddp.py").write_text(SCRIPT.search(page)[1], encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    losses = []
    for words, more in (([], alone), (torchrun, {})):
        command = [sys.executable, *words, "train_ddp.py"]
        options = {"cwd": tmp_path, "env": environment | more, "capture_output": True, "timeout": 300}
        done = subprocess.run(command, **options)
        # under load, a thread of PyTorch sometimes aborts a process that has finished and is about to exit
        assert done.returncode == 0 or b"terminate called without an active exception" in done.stderr, done.stderr
        losses.append(json.loads(done.stdout))
    assert len(set(losses[0])) == 3 and losses[1] == pytest.approx(losses[0], rel=1e-5)
