"""The script that the page on many devices prints: two processes report what one does."""

import json
import os
import re
import socket
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
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    shared |= {"MASTER_PORT": str(port)}  # as torchrun sets them
    command = [sys.executable, script["name"]]
    processes = [
        subprocess.Popen(
            command,
            cwd=tmp_path,
            env=os.environ | shared | {"RANK": rank, "LOCAL_RANK": rank},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ("0", "1")
    ]
    ends = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ends

    namespace = {}
    exec(compile(script["code"], script["name"], "exec"), namespace)
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    try:
        alone = namespace["train"]()
    finally:
        dist.destroy_process_group()
    assert len(alone) == 3 and len(set(alone)) == 3
    assert json.loads(ends[0][0]) == pytest.approx(alone, rel=1e-5)
