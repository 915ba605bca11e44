"""A visitor to the built site: a browser page with its error messages and requests."""

import runpy
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCES = [path.relative_to(DOCS) for path in sorted(DOCS.rglob("*.md")) if "vendor" not in path.parts]
NOTEBOOKS = [Path("notebooks") / path.name for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))]
PAGES = [str(path.with_suffix(".html")) for path in SOURCES + NOTEBOOKS]
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 800}
MATHS = r"""() => {
    const marked = [...document.querySelectorAll(".arithmatex")].filter(node => !node.querySelector(".katex"));
    const wrong = [...document.querySelectorAll(".katex-error")];
    const left = [...document.querySelectorAll(".jp-RenderedMarkdown")].map(node => {
        const copy = node.cloneNode(true);
        copy.querySelectorAll(".katex, code, pre").forEach(part => part.remove());
        return copy;
    }).filter(copy => /\$[^$]+\$/.test(copy.textContent));
    return [...marked, ...wrong, ...left].map(node => node.textContent);
}"""
IN_SIGHT = "nodes => nodes.map(node => node.checkVisibility())"


def load_hook(name: str) -> SimpleNamespace:
    """Returns the names in a module of ``docs/hooks``."""
    return SimpleNamespace(**runpy.run_path(str(DOCS / "hooks" / f"{name}.py")))


class Visit:
    """A browser profile with one tab, which can open one page of the site after the other.

    Attributes:
        page: Playwright's.
        complaints: Errors and warnings in the console, and failed requests.
        requests: Addresses requested since the last :meth:`open`.
    """

    def __init__(self, browser, address: str, *, viewport=WIDE, **options: object) -> None:
        self.address = address  # of the site, with a slash at the end
        self.context = browser.new_context(viewport=viewport, **options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(15_000)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda m: self.complaints.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("requestfailed", self._note_failure)
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _note_failure(self, request: object) -> None:
        if request.failure != "net::ERR_ABORTED":  # the next page was opened before a picture had loaded
            self.complaints.append(f"not loaded: {request.url}")

    def __enter__(self) -> "Visit":
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def open(self, name: str) -> "Visit":
        """Opens a page of the site as on a first visit."""
        if self.page.url != "about:blank":
            self.page.evaluate("localStorage.clear()")  # the site remembers which questions were answered
            self.page.goto("about:blank")  # ends requests of the previous page
        self.page.set_viewport_size(WIDE)
        self.requests.clear()
        self.page.goto(self.address + name)
        return self

    def search(self, word: str) -> str:
        """Returns the first search result for a word, after waiting until there is one."""
        field = self.page.locator("[data-md-component=search-query]")
        field.click()
        field.fill(word)
        field.press("End")  # the search reacts to keys
        result = self.page.locator(".md-search-result__item").first
        result.wait_for(state="visible")
        return result.inner_text()
