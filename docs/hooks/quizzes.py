"""Adds three questions to the end of each notebook page, from ``docs/quizzes/NN.toml``.

A file holds three tables ``[[question]]``. Each has a text ``ask`` and three or four tables ``[[question.choice]]``
with a ``text`` and a reply to ``say`` when it is chosen; exactly one of them has ``right = true``. Maths is enclosed in
dollar signs, code in backticks. ``tests/site/test_quizzes.py`` checks the files, and ``assets/quiz.js`` judges the
answers and stores them in the browser.
"""

import re
import tomllib
from html import escape
from pathlib import Path

from mkdocs.structure.toc import AnchorLink

FOLDER = Path(__file__).parents[1] / "quizzes"
LAST_CELL = re.compile(r'<div class="jp-Cell jp-MarkdownCell\b[^>]*\bid="cell-id=')
TITLE = "Three questions"
NOTE = "Your answers are stored only in this browser. Three correct answers add a tick to the"
CODE = re.compile(r"`([^`]+)`")


def on_page_content(html, page, config, files):
    number = Path(page.file.src_uri).name[:2]
    path = FOLDER / f"{number}.toml"
    if not page.file.src_uri.endswith(".ipynb") or not path.exists():
        return html
    *_, last = LAST_CELL.finditer(html)
    questions = tomllib.loads(path.read_text("utf-8"))["question"]
    page.toc.items[0].children.append(AnchorLink(TITLE, "three-questions", 2))
    return html[: last.start()] + quiz(number, questions) + html[last.start() :]


def quiz(number, questions):
    """The questions as HTML, which stays hidden unless a script can judge the answers."""
    body = "".join(_question(i, question) for i, question in enumerate(questions))
    note = f'<p class="quiz-note">{NOTE} <a href="../learning-path.html">learning path</a>.</p>'
    return (
        f'<section class="quiz" data-notebook="{number}" aria-labelledby="three-questions" data-search-exclude hidden>'
        f'<h2 id="three-questions">{TITLE}</h2>{body}'
        f'<p class="quiz-done" role="status"></p>{note}</section>'
    )


def _question(number, question):
    choices = "".join(map(_choice, question["choice"]))
    ask = f'<p class="quiz-ask" id="ask-{number + 1}">{_text(question["ask"])}</p>'
    return (
        f'<div class="quiz-question" role="group" aria-labelledby="ask-{number + 1}">{ask}'
        f'<ul>{choices}</ul><div class="quiz-say" role="status"></div></div>'
    )


def _choice(choice):
    is_right = " data-right" if choice.get("right") else ""
    button = f'<button type="button" aria-pressed="false"{is_right}>{_text(choice["text"])}</button>'
    return f"<li>{button}<template>{_text(choice['say'])}</template></li>"


def _text(text):
    return CODE.sub(r"<code>\1</code>", escape(" ".join(text.split()), quote=False))
