"""The hooks that keep the site self-contained and its links correct."""

import logging
from types import SimpleNamespace

import pytest

from tests.site.visits import load_hook

pytestmark = pytest.mark.site


@pytest.mark.parametrize(
    ("html", "is_remote"),
    [
        ('<script src="https://example.org/a.js"></script>', True),
        ('<link rel="stylesheet" href="https://example.org/a.css">', True),
        ('<style>@import "https://example.org/a.css";</style>', True),
        ('<p style="background: url(https://example.org/a.png)">', True),
        ('<script type="module">import x from "https://example.org/x.mjs"</script>', True),
        ('<a href="https://example.org/">a link is fine</a>', False),
        ('<code>&lt;script src="https://example.org/a.js"&gt;</code>', False),
    ],
)
def test_remote_assets_are_reported(html: str, is_remote: bool, caplog: pytest.LogCaptureFixture) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="page.md"))
    with caplog.at_level(logging.WARNING, logger="mkdocs.hooks.site"):
        assert load_hook("site_hooks").on_post_page(html, page, None) == html
    assert bool(caplog.records) == is_remote


@pytest.mark.parametrize(
    ("text", "is_notebook", "found"),
    [
        (r"<p>\(n \cdot k\) memberships, \(\operatorname{sg}(p)\)</p>", False, "<p>n · k memberships, …</p>"),
        (r"\[h_i = \sum_j\] is read", False, "… is read"),
        (r"<code>\(n\)</code>", False, r"<code>\(n\)</code>"),
        ("costs $n^2$", False, "costs $n^2$"),
        ("costs $n^2$, $$x$$", True, "costs n2, …"),
    ],
)
def test_search_shows_no_tex(text: str, is_notebook: bool, found: str) -> None:
    assert load_hook("search_maths").without_maths(text, is_notebook) == found


def test_search_shows_no_tex_of_docstrings_in_source_code() -> None:
    source = r"<pre>def f(n): ''' $n \cdot k$ and $\frac12$ '''</pre>"
    assert load_hook("search_maths").without_maths(source, is_api=True) == "<pre>def f(n): ''' n · k and … '''</pre>"
