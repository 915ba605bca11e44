"""The hooks that keep the site self-contained and its links honest."""

import logging
from types import SimpleNamespace

import pytest

from tests.site.visits import load_hook

pytestmark = pytest.mark.site


@pytest.mark.parametrize(
    ("html", "is_remote"),
    [
        ('<script src="https://example.org/a.js"></script>', True),
        ("<script src=//example.org/a.js></script>", True),
        ('<link rel="stylesheet" href="https://example.org/a.css">', True),
        ('<style>@import "https://example.org/a.css";</style>', True),
        ('<p style="background: url(https://example.org/a.png)">', True),
        ('<img alt="x" src="http://example.org/a.png">', True),
        ('<script type="module">import x from "https://example.org/x.mjs"</script>', True),
        ('<a href="https://example.org/">a link is fine</a>', False),
        ('<link rel="canonical" href="https://example.org/">', False),
        ('<code>&lt;script src="https://example.org/a.js"&gt;</code>', False),
        ('<img src="assets/a.png"><script src="assets/a.js"></script>', False),
    ],
)
def test_remote_assets_are_reported(html: str, is_remote: bool, caplog: pytest.LogCaptureFixture) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="page.md"))
    with caplog.at_level(logging.WARNING, logger="mkdocs.hooks.site"):
        assert load_hook("site_hooks").on_post_page(html, page, None) == html
    assert bool(caplog.records) == is_remote


def test_links_in_notebooks_are_checked(caplog: pytest.LogCaptureFixture) -> None:
    def file(uri: str):
        url = uri.replace(".ipynb", ".html").replace(".md", ".html")
        return SimpleNamespace(src_uri=uri, url_relative_to=lambda other: f"<{url} from {other.src_uri}>")

    known = {uri: file(uri) for uri in ("notebooks/00.ipynb", "notebooks/02.ipynb", "notation.md")}
    files = SimpleNamespace(get_file_from_path=known.get)
    page = SimpleNamespace(file=known["notebooks/00.ipynb"])

    def seen(html: str) -> tuple[str, bool]:
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="mkdocs.hooks.site"):
            new = load_hook("site_hooks").on_page_content(html, page, None, files)
        return new, bool(caplog.records)

    assert seen('<a href="02.ipynb#a">') == ('<a href="<notebooks/02.html from notebooks/00.ipynb>#a">', False)
    assert seen('<a href="../docs/notation.md">') == ('<a href="<notation.html from notebooks/00.ipynb>">', False)
    assert seen('<h2 id="a-b"></h2><a href="#A-b">') == ('<h2 id="a-b"></h2><a href="#a-b">', False)
    assert seen('<a href="https://example.org/x">') == ('<a href="https://example.org/x">', False)
    assert seen('<a href="05.ipynb">')[1]
    assert seen('<a href="#nowhere">')[1]
    assert seen('<script src="https://x.org/mathjax.js"></script>a') == ("a", False)
