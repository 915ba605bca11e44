"""Three questions at the end of each notebook page: well formed, judged, remembered, and shown on the learning path."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.site.visits import DOCS, NARROW, NOTEBOOKS, Visit, load_hook

pytestmark = pytest.mark.site

FILES = sorted((DOCS / "quizzes").glob("*.toml"))
PAGE = next(str(path.with_suffix(".html")) for path in NOTEBOOKS if path.name.startswith("00"))
SHOWN = """node => {
    const copy = node.cloneNode(true);
    copy.querySelectorAll(".katex, template").forEach(part => part.remove());
    return copy.textContent;
}"""
GOOD = """
[[question]]
ask = "Which?"
[[question.choice]]
text = "this"
say = "Yes."
right = true
[[question.choice]]
text = "that"
say = "No."
[[question.choice]]
text = "neither"
say = "No."
"""


@pytest.fixture
def visit(browser) -> Iterator[Visit]:
    with Visit(browser) as visitor:
        yield visitor


def test_every_notebook_has_its_questions() -> None:
    assert [path.stem for path in FILES] == [path.name[:2] for path in NOTEBOOKS]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_questions_are_well_formed(path: Path) -> None:
    for question in load_hook("quizzes").read(path):
        texts = [choice["text"] for choice in question["choice"]]
        said = [choice["say"] for choice in question["choice"]]
        assert question["ask"].strip() and all(texts) and all(said)
        assert len(set(texts)) == len(texts) and len(set(said)) == len(said)
        for text in (question["ask"], *texts, *said):
            assert text.count("$") % 2 == 0 and text.count("`") % 2 == 0, text


@pytest.mark.parametrize(
    "text",
    [
        2 * GOOD,
        3 * GOOD.replace("right = true", ""),
        3 * GOOD.replace('say = "No."', 'say = "No."\nright = true'),
        3 * GOOD.replace('say = "Yes."\n', ""),
        3 * GOOD.replace('ask = "Which?"', ""),
        3 * GOOD.rsplit("[[question.choice]]", 1)[0],
        3 * GOOD.replace('say = "Yes."', 'say = "Yes."\nwhy = "?"'),
    ],
)
def test_other_questions_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "00.toml"
    path.write_text(3 * GOOD)
    assert len(load_hook("quizzes").read(path)) == 3
    path.write_text(text)
    with pytest.raises(ValueError, match=r"00\.toml"):
        load_hook("quizzes").read(path)


def test_answers_are_judged_and_remembered(visit: Visit, quick_address: str) -> None:
    page = visit.open(quick_address + PAGE).page
    questions = page.locator(".quiz-question")
    assert questions.count() == 3
    first = questions.first
    wrong, right = first.locator("button:not([data-right])").first, first.locator("button[data-right]")
    wrong.focus()
    page.keyboard.press("Enter")
    assert first.locator(".quiz-say").inner_text().startswith("✗") and wrong.get_attribute("aria-pressed") == "true"
    right.focus()
    page.keyboard.press("Space")
    assert first.locator(".quiz-say").inner_text().startswith("✓ Right.")
    assert wrong.get_attribute("aria-pressed") == "false"
    assert "tick" not in page.locator(".quiz-done").inner_text()
    for colours in ("default", "slate"):
        assert visit.colours() == colours
        assert visit.poor_contrasts() == []
        visit.toggle_colours()

    page.goto(quick_address + "learning-path.html")
    assert page.locator(".course-tick:not(:empty)").count() == 0
    page.goto(quick_address + PAGE)
    assert page.locator(".quiz-question").first.locator(".quiz-say").inner_text().startswith("✓")
    for question in page.locator(".quiz-question").all():
        question.locator("button[data-right]").click()
    assert "tick" in page.locator(".quiz-done").inner_text()

    page.goto(quick_address + "learning-path.html")
    assert page.locator("[data-notebook='00'] .course-tick").inner_text() == "✓ done"
    assert page.locator(".course-progress").inner_text().startswith("1 of 16 done.")
    page.reload()
    assert page.locator(".course-tick:not(:empty)").count() == 1
    page.locator(".course-progress button").click()
    assert page.locator(".course-tick:not(:empty)").count() == 0
    assert visit.complaints == []


def test_maths_in_questions_is_typeset(visit: Visit, quick_address: str) -> None:
    page = visit.open(quick_address + PAGE).page
    for button in page.locator(".quiz button").all():
        button.click()
        question = button.locator("xpath=ancestor::div[contains(@class, 'quiz-question')]")
        assert "$" not in question.evaluate(SHOWN)
    assert page.locator(".quiz .katex").count() > 0 and page.locator(".quiz .katex-error").count() == 0
    page.set_viewport_size(NARROW)
    assert visit.width() <= NARROW["width"]


@pytest.mark.parametrize("refused", ["getItem", "setItem"])
def test_without_storage_answers_are_judged_all_the_same(browser, quick_site: Path, refused: str) -> None:
    with Visit(browser) as visit:
        page = visit.page
        page.goto((quick_site / PAGE).as_uri())  # from disk, too
        page.evaluate(f"() => {{ Storage.prototype.{refused} = () => {{ throw new DOMException('no') }} }}")
        page.locator(".quiz button[data-right]").first.click()
        assert page.locator(".quiz-say").first.inner_text().startswith("✓ Right.")
        assert visit.complaints == []
