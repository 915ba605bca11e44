"""Workers end with their study, if the parent is killed, or by Ctrl-C, which a terminal sends to all processes."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
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


@pytest.mark.parametrize(
    ("stop", "code", "line"),
    [
        (lambda pid: os.kill(pid, signal.SIGKILL), -signal.SIGKILL, None),
        (lambda pid: os.killpg(pid, signal.SIGINT), 130, "sbmt: stopped\n"),
    ],
    ids=["killed", "Ctrl-C"],
)
def test_workers_leave_with_a_study(tmp_path, stop, code, line):
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
        try:
            assert study.stdout.readline() == "step\n"
            stop(study.pid)
            _, err = study.communicate(timeout=60)  # a worker holds the pipes open until it ends
        finally:
            with suppress(ProcessLookupError):
                os.killpg(study.pid, signal.SIGKILL)
    assert study.returncode == code and line in (None, err)
