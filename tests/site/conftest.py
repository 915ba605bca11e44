"""Fixtures: the built site, a server for it, and a visitor with a browser."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.site.visits import ROOT, Visit


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the site with warnings as errors, without ``-q``, which would hide them from ``--strict``.

    ``SBMT_SITE`` may name an existing build, which saves time while you write tests.
    """
    if "SBMT_SITE" in os.environ:
        return Path(os.environ["SBMT_SITE"]).resolve()
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


class _Server(SimpleHTTPRequestHandler):
    """Serves the site with an empty search index, because every page rebuilds the index when it is opened."""

    def __init__(self, *args: object, index: Path, **options: object) -> None:
        self.index = index
        super().__init__(*args, **options)

    def translate_path(self, path: str) -> str:
        return str(self.index) if path.endswith("search_index.json") else super().translate_path(path)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "max-age=3600")  # files shared by pages are loaded only once
        super().end_headers()


@pytest.fixture(scope="session")
def address(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Returns the address of the served site, with a final slash."""
    found = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    found["docs"] = []
    index = tmp_path_factory.mktemp("search") / "search_index.json"
    index.write_text(json.dumps(found), "utf-8")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Server, directory=str(site), index=index)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="session")
def _visitor(browser, address: str) -> Iterator[Visit]:
    # one visitor for all tests, so that shared files are loaded once
    with Visit(browser, address, permissions=["clipboard-read", "clipboard-write"], reduced_motion="reduce") as visitor:
        yield visitor


@pytest.fixture
def visit(_visitor: Visit) -> Iterator[Visit]:
    """Returns a visitor to the served site; the browser must not report errors or warnings."""
    _visitor.complaints.clear()
    yield _visitor
    assert _visitor.complaints == []
