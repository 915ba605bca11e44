"""Turns the tables of notebooks on the learning path into cards, and fills in how long reading takes.

- Each row of the page's tables has a notebook's number, its question, its run time and a caption for the picture to
  remember. A card adds that picture, the time that reading takes, and a place for a tick (``assets/quiz.js``).
- ``<!-- reading time: 00 02 -->`` becomes the time for these notebooks together, ``all`` for all of them.
- ``<!-- reading rule -->`` becomes the rule by which this time is counted.
"""

import re
import sys
from html import escape
from itertools import chain
from pathlib import Path

from mkdocs.structure.files import File

sys.path.append(str(Path(__file__).parent))
import course

PAGE = "learning-path.md"
TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
ROW = re.compile(r"<tr>\s*" + r"<td[^>]*>(.*?)</td>\s*" * 4 + "</tr>", re.DOTALL)
TIME = re.compile(r"<!-- reading time: ([\d ]+|all) -->")
RULE = "<!-- reading rule -->"
IMAGE = "assets/pictures/{}.png"
PROGRESS = (
    '<p class="course-progress" role="status" hidden><span></span> <button type="button">Forget my answers</button></p>'
)


def on_files(files, *, config):
    for notebook in course.notebooks():
        if notebook.picture:
            files.append(File.generated(config, IMAGE.format(notebook.number), content=notebook.picture[0]))
    return files


def on_page_markdown(markdown, *, page, config, files):
    markdown = TIME.sub(lambda found: time_of(found[1]), markdown)
    return markdown.replace(RULE, rule())


def on_page_content(html, page, config, files):
    if page.file.src_uri != PAGE:
        return html
    first, *others = TABLE.split(html)
    *core, asides = TABLE.findall(html)
    cards = [*map(_cards, core), _cards(asides, "course-asides")]
    return first + PROGRESS + "".join(chain.from_iterable(zip(cards, others, strict=True)))


def time_of(numbers):
    """The time that reading these notebooks takes: ``"00 02"``, or ``"all"``."""
    known = {notebook.number: notebook.minutes for notebook in course.notebooks()}
    wanted = known if numbers == "all" else numbers.split()
    return course.spelled(sum(known[number] for number in wanted))


def rule():
    """The rule by which the time is counted."""
    return (
        f"{course.WORDS_PER_MINUTE} words of prose and {course.LINES_PER_MINUTE} lines of code per minute, "
        "not counting folded parts"
    )


def _cards(table, kind=""):
    of = {notebook.number: notebook for notebook in course.notebooks()}
    cards = [_card(of[row[1].strip()], *row.groups()[1:]) for row in ROW.finditer(table)]
    return f'<ol class="course {kind}">{"".join(cards)}</ol>'


def _card(notebook, question, runs, caption):
    time = f"{course.spelled(notebook.minutes)} to read · runs in {runs}"
    picture = ""
    if notebook.picture:
        alt = escape(notebook.picture[1] or re.sub(r"<[^>]*>", "", caption))
        image = f'<img src="{IMAGE.format(notebook.number)}" alt="{alt}" loading="lazy">'
        picture = f'<div class="course-picture">{image}</div>'
    return (
        f'<li data-notebook="{notebook.number}"><p class="course-title"><b>{notebook.number}</b> {question} '
        f'<span class="course-tick"></span></p><p class="course-time">{time}</p>{picture}<p>{caption}</p></li>'
    )
