"""The built site, a server for it, and a browser to look at it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.site.playground_page import visit

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a site built with warnings as errors. Never with ``-q``: that hides them from ``--strict`` too.

    ``SBMT_SITE`` may name a folder that was built before, which spares the time while one writes tests.
    """
    if "SBMT_SITE" in os.environ:
        return Path(os.environ["SBMT_SITE"]).resolve()
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "max-age=3600")  # a visitor of many pages asks for what they share once
        super().end_headers()


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serves a folder; yields its address with a slash at the end."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    """Where the site is served, with a slash at the end."""
    with served(site) as address:
        yield address


@pytest.fixture(scope="session")
def quick_site(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site with one page in its search index: every page that is opened builds that index anew."""
    folder = tmp_path_factory.mktemp("quick_site")
    for entry in site.iterdir():
        if entry.name != "search":
            (folder / entry.name).symlink_to(entry)
    (folder / "search").mkdir()
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    index["docs"] = [doc for doc in index["docs"] if doc["location"].startswith("theory.html")]
    text = json.dumps(index)
    (folder / "search" / "search_index.json").write_text(text, encoding="utf-8")
    (folder / "search" / "search_index.js").write_text(f"var __index = {text}", encoding="utf-8")  # for pages from disk
    return folder


@pytest.fixture(scope="session")
def quick_address(quick_site: Path) -> Iterator[str]:
    """Where that one is served, with a slash at the end."""
    with served(quick_site) as address:
        yield address


@pytest.fixture
def page(browser, quick_address: str) -> Iterator[object]:
    """The playground, in a fresh profile."""
    with visit(browser, quick_address + "playground.html") as page:
        yield page
