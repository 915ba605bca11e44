"""The workers of a study end with it: with a parent that is killed, and by Ctrl-C, which a terminal sends to all."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

CODE = """if __name__ == "__main__":
    import sys
    from pathlib import Path
    from sbmt.command import run_command
    from sbmt.experiments.training import RepeatedTokensConfig
    from sbmt.experiments.studies.study import Study, Trial, run_study
    config = RepeatedTokensConfig(attention="full", length=8, batch_size=2, d_model=4, d_hidden=4, steps=10**6)
    study = Study("endless", "endless", config, (Trial("a", "a"),), 1)
    report = lambda *_: print("step", flush=True)
    run_command(lambda: run_study(study, Path(sys.argv[1]), n_workers=2, report=report), "sbmt")
    """


def children_of(pid):
    """Of a process that runs, by the kernel's own list."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return {int(child) for child in path.read_text().split()}


def kill_parent(study):
    study.send_signal(signal.SIGKILL)
    study.wait()


def press_ctrl_c(study):
    os.killpg(study.pid, signal.SIGINT)
    _, err = study.communicate()
    assert (study.returncode, err) == (130, "sbmt: stopped\n")


@pytest.mark.parametrize("stop", [kill_parent, press_ctrl_c])
def test_workers_leave_with_a_study(tmp_path, stop):
    script = tmp_path / "study.py"
    script.write_text(CODE)
    with subprocess.Popen(
        [sys.executable, script, tmp_path / "runs"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        start_new_session=True,
    ) as study:
        workers = set()
        try:
            assert study.stdout.readline() == "step\n"
            workers = children_of(study.pid)
            assert workers
            stop(study)
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
