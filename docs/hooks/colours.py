"""Puts a swatch before each colour that the page on notation names, read from the style of the figures.

In ``notation.md``, ``BLUE`` in backticks at the start of a table row becomes a swatch with the colour's name. A name
that ``sbmt/experiments/plots/style.py`` does not have is a warning, which fails the strict build.
"""

import logging
import re

LOG = logging.getLogger("mkdocs.hooks.colours")
CELL = re.compile(r"(<td[^>]*>)<code>([A-Z_]+)</code></td>")
STEPS = 5  # of a scale's gradient


def on_page_content(html, page, config, files):
    return CELL.sub(_with_swatch, html) if page.file.src_uri == "notation.md" else html


def _with_swatch(cell):
    from sbmt.experiments.plots import style

    colour = getattr(style, cell[2], None)
    if colour is None:
        LOG.warning("notation.md: the figures' style has no colour called %s", cell[2])
        return cell[0]
    swatch = f'<i class="swatch" style="background: {_background(colour)}" aria-hidden="true"></i>'
    return f"{cell[1]}{swatch}{cell[2].lower().removesuffix('_colours')}</td>"


def _background(colour):
    if isinstance(colour, str):
        return colour
    from matplotlib.colors import to_hex

    steps = ", ".join(to_hex(colour(i / (STEPS - 1))) for i in range(STEPS))
    return f"linear-gradient(90deg, {steps})"
