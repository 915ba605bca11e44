"""Opens a copy of each notebook in JupyterLab, and runs all cells from the menu, including stubs.

This takes some minutes, so only ``make lab-test`` runs it.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress

import pytest

from tests.course.reading import PATHS, ROOT, cells

pytestmark = pytest.mark.lab

TOKEN = "course"  # the server listens only on this machine, and only during this test
MINUTE = 60_000  # milliseconds
SETTINGS = {
    # Cells that are out of sight would not be part of the page otherwise.
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True},
}
IDLE = ".jp-Notebook-ExecutionIndicator[data-status=idle]"
IS_DONE = """idle => {
    const prompts = [...document.querySelectorAll('.jp-Notebook .jp-CodeCell .jp-InputPrompt')];
    const texts = prompts.map(node => node.textContent);
    const isIdle = document.querySelector(idle) !== null;
    return isIdle && texts.some(text => /\\d/.test(text)) && !texts.some(text => text.includes('*'));
}"""


def ask(address: str, path: str, method: str = "GET") -> list:
    """Returns the server's answer to a request to its API."""
    request = urllib.request.Request(f"{address}/api/{path}?token={TOKEN}", method=method)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read() or b"[]")


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    """Returns the address of a JupyterLab with a copy of the course, and with temporary settings."""
    folder, home = tmp_path_factory.mktemp("course"), tmp_path_factory.mktemp("jupyter")
    for name in ("docs", "results"):  # files that notebooks link to and read
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("notebooks", "vendor"))
    subprocess.run([sys.executable, ROOT / "notebooks" / "copies.py", folder / "lab"], check=True)
    for name, content in SETTINGS.items():
        file = home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content), "utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    places = "JUPYTER_CONFIG_DIR JUPYTER_DATA_DIR JUPYTER_RUNTIME_DIR JUPYTERLAB_WORKSPACES_DIR IPYTHONDIR".split()
    environment = os.environ | {name: str(home / name.lower()) for name in places}
    environment |= {"JUPYTERLAB_SETTINGS_DIR": str(home / "settings"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}", "--allow-root"]
    command += [f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={folder}", "--ServerApp.port_retries=0"]
    address, end = f"http://127.0.0.1:{port}", time.monotonic() + 120
    with (home / "log").open("w") as log:
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        while True:
            assert time.monotonic() < end and server.poll() is None, (home / "log").read_text("utf-8")
            with suppress(OSError):
                ask(address, "sessions")
                break
            time.sleep(0.5)
        yield address
    finally:
        server.terminate()
        server.wait(timeout=30)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem[:2])
def test_a_learner_runs_all_cells(browser, lab, path):
    """No cell fails, maths is typeset, and there are as many figures as in the committed file."""
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    page.set_default_timeout(MINUTE)
    page.goto(f"{lab}/lab/tree/lab/{path.name}?token={TOKEN}&reset")
    page.locator(IDLE).wait_for(state="attached")
    page.wait_for_timeout(1000)  # the kernel is known to the page a little later than to the server
    page.locator(".lm-MenuBar-item", has_text=re.compile("^Run$")).click()
    page.locator(".lm-Menu-item", has_text=re.compile("^Run All Cells")).click()
    page.wait_for_function(IS_DONE, arg=IDLE, timeout=15 * MINUTE)
    for selector in ("[data-mime-type='application/vnd.jupyter.error']", "mjx-merror", "[data-mjx-error]"):
        assert page.locator(selector).all_inner_texts() == []
    page.wait_for_function("document.querySelectorAll('mjx-container').length > 0")
    outputs = [output for cell in cells(path) for output in cell.get("outputs", [])]
    n_committed = sum("image/png" in output.get("data", {}) for output in outputs)
    assert page.locator(".jp-OutputArea-output img").count() == n_committed
    page.close()
    for session in ask(lab, "sessions"):
        ask(lab, f"sessions/{session['id']}", "DELETE")
