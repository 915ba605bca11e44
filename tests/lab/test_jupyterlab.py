"""A learner's hour in JupyterLab: opens each notebook, runs all of it by the menu, stubs included, and looks around.

This takes some minutes, so only ``make lab-test`` runs it.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

pytestmark = pytest.mark.lab

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
MINUTE = 60_000  # milliseconds
PROMPTS = ".jp-Notebook .jp-CodeCell .jp-InputPrompt"
IS_DONE = """selector => {
    const prompts = [...document.querySelectorAll(selector)].map(node => node.textContent);
    const isIdle = document.querySelector('.jp-Notebook-ExecutionIndicator')?.dataset.status === 'idle';
    return isIdle && prompts.some(text => /\\d/.test(text)) && !prompts.some(text => text.includes('*'));
}"""


@pytest.fixture
def page(browser, lab) -> Iterator[object]:
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    page = context.new_page()
    page.set_default_timeout(MINUTE)
    yield page
    context.close()
    lab.stop_kernels()


def open_notebook(page, lab, name: str) -> None:
    page.goto(lab.url(name))
    page.locator(".jp-Notebook .jp-CodeCell").first.wait_for()
    for _ in range(120):
        kernels = [session["kernel"] for session in lab.ask("sessions")]
        if any(kernel["execution_state"] == "idle" and kernel["connections"] for kernel in kernels):
            break
        page.wait_for_timeout(500)
    page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for(state="attached")
    page.wait_for_timeout(1000)  # the page learns of its kernel a little later than the server


def run_all_by_the_menu(page) -> None:
    page.locator(".lm-MenuBar-item", has_text=re.compile("^Run$")).click()
    page.locator(".lm-Menu-item", has_text=re.compile("^Run All Cells")).click()
    page.wait_for_function(IS_DONE, arg=PROMPTS, timeout=15 * MINUTE)


def texts(page, selector: str) -> list[str]:
    return page.eval_on_selector_all(selector, "nodes => nodes.map(node => node.textContent)")


def check_outputs(page, path: Path) -> None:
    """Nothing failed, everything ran, and there are as many figures as in the file that is committed."""
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    for kind in ("error", "stderr"):
        assert texts(page, f"[data-mime-type='application/vnd.jupyter.{kind}']") == []
    counts = [int(number) for text in texts(page, PROMPTS) for number in re.findall(r"\d+", text)]
    is_folded = [cell.metadata.get("jupyter", {}).get("source_hidden", False) for cell in cells]
    assert counts == [number for number, folded in enumerate(is_folded, 1) if not folded]  # solutions show no number
    n_committed = sum("image/png" in output.get("data", {}) for cell in cells for output in cell.outputs)
    page.wait_for_function("() => [...document.querySelectorAll('.jp-OutputArea-output img')].every(n => n.complete)")
    sizes = page.eval_on_selector_all(".jp-OutputArea-output img", "nodes => nodes.map(node => node.naturalWidth)")
    assert len(sizes) == n_committed and all(size > 100 for size in sizes)


def check_maths(page) -> None:
    """What is written between dollars has become maths, without complaints."""
    page.wait_for_function("() => document.querySelectorAll('mjx-container').length > 0")
    complaints = texts(page, "mjx-merror, [data-mjx-error], .katex-error, .MathJax_Error")
    assert complaints == []
    left_over = page.eval_on_selector_all(
        ".jp-RenderedMarkdown",
        """nodes => nodes.map(node => {
            const copy = node.cloneNode(true);
            copy.querySelectorAll('mjx-container, code, pre').forEach(part => part.remove());
            return copy.textContent;
        })""",
    )
    assert [text for text in left_over if re.search(r"\$[^$]+\$", text)] == []
    red = """nodes => nodes.filter(node => getComputedStyle(node).color === 'rgb(255, 0, 0)').length"""
    assert page.eval_on_selector_all("mjx-container *", red) == 0


def check_links(page, lab) -> None:
    """Relative links lead to files, and the last one opens the neighbour in a tab of its own."""
    anchors = page.locator(".jp-RenderedMarkdown a[href*='/files/']")
    given = anchors.evaluate_all("nodes => nodes.map(node => new URL(node.href).pathname.split('/files/')[1])")
    assert given and [path for path in given if not (lab.folder / path).exists()] == []
    anchors.filter(has_text=re.compile(r"^\d\d · ")).last.click()
    page.locator(".lm-TabBar-tabLabel", has_text=Path(given[-1]).name).first.wait_for()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem[:2])
def test_a_learner_runs_all_cells(page, lab, path: Path) -> None:
    open_notebook(page, lab, path.name)
    run_all_by_the_menu(page)
    check_outputs(page, path)
    check_maths(page)
    check_links(page, lab)
