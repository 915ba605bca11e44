"""A JupyterLab on a copy of the course, as a learner starts it, and a browser to sit in front of it."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOKEN = "course"  # the server listens on this machine alone, and for this test alone
SETTINGS = {
    # Cells out of sight would otherwise not be part of the page, and could not be looked at.
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True},
}


@dataclass(frozen=True)
class Lab:
    """A running server: where it listens, and the copy of the course that it serves."""

    address: str
    folder: Path

    def url(self, notebook: str) -> str:
        """Opens one notebook in an empty workspace."""
        return f"{self.address}/lab/tree/lab/{notebook}?token={TOKEN}&reset"

    def ask(self, path: str, method: str = "GET") -> list:
        """The server's answer to a request to its API."""
        request = urllib.request.Request(f"{self.address}/api/{path}?token={TOKEN}", method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read() or b"[]")

    def stop_kernels(self) -> None:
        """Ends the kernels of this server, so that the next notebook has the machine to itself."""
        for session in self.ask("sessions"):
            self.ask(f"sessions/{session['id']}", "DELETE")


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """JupyterLab with settings, workspaces and history of its own, which all vanish in the end."""
    folder, home = tmp_path_factory.mktemp("course"), tmp_path_factory.mktemp("jupyter")
    for name in ("docs", "results"):  # what notebooks link to and read
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
    with (home / "log").open("w") as log:
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    found = Lab(f"http://127.0.0.1:{port}", folder)
    try:
        wait_for(found, server, home / "log")
        yield found
        found.stop_kernels()
    finally:
        server.terminate()
        server.wait(timeout=30)


def wait_for(lab: Lab, server: subprocess.Popen, log: Path, patience: float = 120) -> None:
    """Waits until the server answers; fails with its log if it does not."""
    end = time.monotonic() + patience
    while time.monotonic() < end and server.poll() is None:
        try:
            lab.ask("sessions")
            return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.5)
    pytest.fail(f"JupyterLab did not start:\n{log.read_text('utf-8')}")
