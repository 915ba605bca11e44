"""What becomes of a study's workers."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

CODE = """if __name__ == "__main__":
    import sys
    from pathlib import Path
    from sbmt.experiments.training import RepeatedTokensConfig
    from sbmt.experiments.studies.study import Study, Trial, run_study
    config = RepeatedTokensConfig(attention="full", length=8, batch_size=2, d_model=4, d_hidden=4, steps=10**6)
    study = Study("endless", "endless", config, (Trial("a", "a"),), 1)
    run_study(study, Path(sys.argv[1]), n_workers=2, report=lambda *_: print("step", flush=True))
    """


def children_of(pid):
    """Of a process that runs, by the kernel's own list."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return {int(child) for child in path.read_text().split()}


def test_workers_leave_with_a_parent_that_is_killed(tmp_path):
    script = tmp_path / "study.py"
    script.write_text(CODE)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    arguments = [sys.executable, script, tmp_path / "runs"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environment) as study:
        workers = set()
        try:
            assert study.stdout.readline() == "step\n"
            workers = children_of(study.pid)
            assert workers
            study.send_signal(signal.SIGKILL)
            study.wait()
            for _ in range(600):  # a moment is what they take; the rest is for a busy machine
                if not any(map(is_alive, workers)):
                    break
                time.sleep(0.1)
            assert not any(map(is_alive, workers))
        finally:
            for pid in filter(is_alive, (study.pid, *workers)):
                os.kill(pid, signal.SIGKILL)


def is_alive(pid):
    """Whether a process runs; one that has ended but was not yet waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
