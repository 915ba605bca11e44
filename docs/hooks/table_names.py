"""Marks table cells for the style sheet: short and long names at the start of rows, and options.

A short name stays on one line; a long one gets a minimum width for a few words per line. CSS cannot measure the length
of a text. The first cell of a row is a name; in tables with many columns so is the second, if it begins with a letter.
An option is code that begins with two hyphens, and numbers stay on one line, with their units.
"""

import re
from html import unescape

ROW = re.compile(r"<tr>\s*<td.*?</tr>", re.DOTALL)
CELL = re.compile(r"<td((?: style=\"[^\"]*\")?)>(.*?)(?=</td>)", re.DOTALL)
OPTION = re.compile(r"<code>(?=--[\w-]+</code>)")
NUMBER = re.compile(r"[\d.,%×±−+ –]{1,14}(?: to [\d.,−]+)?$")
TAG = re.compile(r"<[^>]*>")
SHORT = 22  # characters
MANY = 6  # columns


def on_page_content(html, page, config, files):
    return OPTION.sub('<code class="option">', ROW.sub(_marked_row, html))


def _marked_row(match):
    row = CELL.sub(_marked, match[0], count=1)
    cells = list(CELL.finditer(row))  # without the first, which is marked
    if len(cells) + 1 >= MANY and _text(cells[0])[:1].isalpha():
        row = CELL.sub(_marked, row, count=1)
    return CELL.sub(_marked_number, row)


def _marked(cell):
    kind = "short" if len(_text(cell)) <= SHORT else "long"
    return f'<td class="name-{kind}"{cell[1]}>{cell[2]}'


def _marked_number(cell):
    return f'<td class="number"{cell[1]}>{cell[2]}' if NUMBER.match(_text(cell)) else cell[0]


def _text(cell):
    return unescape(TAG.sub("", cell[2])).strip()
