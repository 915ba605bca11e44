"""Tests the questions at the end of each notebook page: form, judgement, storage, and ticks on the learning path."""

import tomllib
from pathlib import Path

import pytest

from tests.site.visits import DOCS, NOTEBOOKS, Visit

pytestmark = pytest.mark.site

FILES = [DOCS / "quizzes" / f"{path.name[:2]}.toml" for path in NOTEBOOKS]
PAGE = str(NOTEBOOKS[0].with_suffix(".html"))
N_ASIDES = 6


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_questions_are_well_formed(path: Path) -> None:
    questions = tomllib.loads(path.read_text("utf-8"))["question"]
    assert len(questions) == 3
    for question in questions:
        choices = question["choice"]
        assert question.keys() == {"ask", "choice"} and 3 <= len(choices) <= 4
        assert all({"text", "say"} <= choice.keys() <= {"text", "say", "right"} for choice in choices)
        assert [choice.get("right", False) for choice in choices].count(True) == 1
        texts, said = ([choice[name].strip() for choice in choices] for name in ("text", "say"))
        assert len(set(texts)) == len(texts) and len(set(said)) == len(said)
        for text in (question["ask"].strip(), *texts, *said):
            assert text and text.count("$") % 2 == 0 and text.count("`") % 2 == 0, text


def test_answers_are_judged_and_remembered(visit: Visit) -> None:
    page = visit.open(PAGE).page
    questions = page.locator(".quiz-question")
    assert questions.count() == 3
    first = questions.first
    wrong, right = first.locator("button:not([data-right])").first, first.locator("button[data-right]")
    wrong.press("Enter")
    assert first.locator(".quiz-say").inner_text().startswith("✗") and wrong.get_attribute("aria-pressed") == "true"
    right.press("Space")
    assert first.locator(".quiz-say").inner_text().startswith("✓ Right.")
    assert wrong.get_attribute("aria-pressed") == "false"
    assert "tick" not in page.locator(".quiz-done").inner_text()

    page.goto(visit.address + "learning-path.html")
    assert page.locator(".course-tick:not(:empty)").count() == 0
    page.goto(visit.address + PAGE)
    assert page.locator(".quiz-question").first.locator(".quiz-say").inner_text().startswith("✓")
    for question in page.locator(".quiz-question").all():
        question.locator("button[data-right]").click()
    assert "tick" in page.locator(".quiz-done").inner_text()

    page.goto(visit.address + "learning-path.html")
    assert page.locator("[data-notebook='00'] .course-tick").inner_text() == "✓ done"
    assert page.locator(".course-progress").inner_text().startswith(f"1 of {len(NOTEBOOKS) - N_ASIDES} done.")
    asides = page.locator(".course-asides [data-notebook]")
    assert asides.count() == N_ASIDES
    number = asides.first.get_attribute("data-notebook")
    page.evaluate("n => localStorage.setItem('sbmt.course', JSON.stringify({ done: ['00', n] }))", number)
    page.reload()
    assert page.locator(f"[data-notebook='{number}'] .course-tick").inner_text() == "✓ done"
    assert page.locator(".course-progress").inner_text().startswith("1 of ")  # not counting asides
    page.locator(".course-progress button").click()
    assert page.locator(".course-tick:not(:empty)").count() == 0
