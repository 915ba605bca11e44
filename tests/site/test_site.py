"""Builds the documentation strictly, then reads every page as a visitor's browser does."""

import importlib.util
import logging
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

import sbmt

pytestmark = pytest.mark.site

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCES = [path.relative_to(DOCS) for path in sorted(DOCS.rglob("*.md")) if "vendor" not in path.parts]
NOTEBOOKS = [Path("notebooks") / path.name for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]
PAGES = [str(path.with_suffix(".html")) for path in SOURCES + NOTEBOOKS]
FENCE = re.compile(r"^```python.*?\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Visit:
    """One page in a fresh browser profile, with what it complained about and what it asked for."""

    def __init__(self, browser, url: str, colours: str = "light") -> None:
        self.context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=colours)
        self.page = self.context.new_page()
        self.page.set_default_timeout(15_000)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda m: self.complaints.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("requestfailed", lambda request: self.complaints.append(f"not loaded: {request.url}"))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(url)

    def __enter__(self) -> "Visit":
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def search(self, word: str) -> str:
        """The first result for a word; waits until there is one."""
        field = self.page.locator("[data-md-component=search-query]")
        field.click()
        field.press_sequentially(word)  # key by key: the search listens to keys
        result = self.page.locator(".md-search-result__item").first
        result.wait_for(state="visible")
        return result.inner_text()


def check_maths(visit: Visit) -> None:
    """Whatever is marked as maths has become maths, and no dollar signs are left around."""
    page = visit.page
    untouched = "nodes => nodes.filter(node => !node.querySelector('.katex')).map(node => node.textContent)"
    assert page.eval_on_selector_all(".arithmatex", untouched) == []
    assert page.eval_on_selector_all(".katex-error", "nodes => nodes.map(node => node.textContent)") == []
    texts = page.eval_on_selector_all(
        ".jp-RenderedMarkdown",
        """nodes => nodes.map(node => {
            const copy = node.cloneNode(true);
            copy.querySelectorAll(".katex, code, pre").forEach(part => part.remove());
            return copy.textContent;
        })""",
    )
    assert [text for text in texts if re.search(r"\$[^$]+\$", text)] == []


@pytest.mark.parametrize("name", PAGES)
def test_page_reads_well(browser, address: str, site: Path, name: str) -> None:
    assert (site / name).exists()
    with Visit(browser, address + name) as visit:
        page = visit.page
        check_maths(visit)
        assert "edge" in visit.search("edge").lower()
        page.keyboard.press("Escape")

        scheme = "() => document.body.getAttribute('data-md-color-scheme')"
        assert page.evaluate(scheme) == "default"
        page.locator("label.md-header__button[for^=__palette]:visible").click()
        page.wait_for_function(f"({scheme})() === 'slate'")

        page.set_viewport_size({"width": 390, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        images = "nodes => nodes.filter(n => n.complete && !n.naturalWidth).map(n => n.src)"
        assert page.eval_on_selector_all("img", images) == []
        assert visit.complaints == []
        assert [url for url in visit.requests if not url.startswith((address, "data:", "blob:"))] == []


@pytest.mark.parametrize("name", [name for name in PAGES if name in ("semantics.html", *map(str, PAGES[-1:]))])
def test_page_reads_well_from_disk(browser, site: Path, name: str) -> None:
    with Visit(browser, (site / name).as_uri()) as visit:
        check_maths(visit)
        assert "edge" in visit.search("edge").lower()
        assert visit.complaints == []
        assert [url for url in visit.requests if not url.startswith(("file:", "data:", "blob:"))] == []


def test_maths_is_typeset(browser, address: str) -> None:
    with Visit(browser, address + "semantics.html") as visit:
        assert visit.page.locator(".katex-display").count() >= 5
        # KaTeX keeps the source for screen readers; what is shown are its glyphs, in its own font.
        family = visit.page.eval_on_selector(".katex-html .mord", "node => getComputedStyle(node).fontFamily")
        assert family.startswith("KaTeX")
        assert visit.page.evaluate("document.fonts.ready.then(() => document.fonts.check('16px KaTeX_Main'))")


def test_dark_colours_follow_the_system(browser, address: str) -> None:
    with Visit(browser, address + "index.html", colours="dark") as visit:
        assert visit.page.get_attribute("body", "data-md-color-scheme") == "slate"
        ink = "getComputedStyle(document.querySelector('.pl-name')).fill"
        red = int(re.findall(r"[\d.]+", visit.page.evaluate(ink))[0])
        assert red > 128  # light text in the diagram, too


def test_every_public_name_is_documented(site: Path) -> None:
    anchors = {
        anchor.rpartition(".")[2]
        for page in (site / "api").glob("*.html")
        for anchor in re.findall(r'id="(sbmt\.[\w.]+)"', page.read_text(encoding="utf-8"))
    }
    assert set(sbmt.__all__) - anchors - {"__version__"} == set()


@pytest.mark.parametrize("source", [s for s in map(str, SOURCES) if FENCE.search((DOCS / s).read_text("utf-8"))])
def test_code_on_pages_runs(source: str) -> None:
    namespace: dict[str, object] = {}
    for code in FENCE.findall((DOCS / source).read_text(encoding="utf-8")):
        exec(compile(code, source, "exec"), namespace)


def test_command_line_page_is_complete() -> None:
    from typer.main import get_command

    from sbmt.cli import app

    text = (DOCS / "cli.md").read_text(encoding="utf-8")

    def leaves(command, name: str) -> dict[str, object]:
        children = getattr(command, "commands", None)
        if not children:
            return {name: command}
        return {k: v for child, c in children.items() for k, v in leaves(c, f"{name} {child}").items()}

    commands = leaves(get_command(app), "sbmt")
    assert {name for name in commands if f"## `{name}`" not in text} == set()
    for line in re.findall(r"^sbmt .*$", text, re.MULTILINE):
        command = next(command for name, command in commands.items() if f"{line} ".startswith(f"{name} "))
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        assert set(re.findall(r"--[\w-]+", line)) <= known, line


def load_hooks():
    spec = importlib.util.spec_from_file_location("site_hooks", DOCS / "hooks" / "site_hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
        assert load_hooks().on_post_page(html, page, None) == html
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
            new = load_hooks().on_page_content(html, page, None, files)
        return new, bool(caplog.records)

    assert seen('<a href="02.ipynb#a">') == ('<a href="<notebooks/02.html from notebooks/00.ipynb>#a">', False)
    assert seen('<a href="../docs/notation.md">') == ('<a href="<notation.html from notebooks/00.ipynb>">', False)
    assert seen('<h2 id="a-b"></h2><a href="#A-b">') == ('<h2 id="a-b"></h2><a href="#a-b">', False)
    assert seen('<a href="https://example.org/x">') == ('<a href="https://example.org/x">', False)
    assert seen('<a href="05.ipynb">')[1]
    assert seen('<a href="#nowhere">')[1]
    assert seen('<script src="https://x.org/mathjax.js"></script>a') == ("a", False)
