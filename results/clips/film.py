"""Films as SVG: one file with nothing beside it, moved by CSS alone, so that an ``<img>`` plays it."""

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import TypeAlias

from sbmt.experiments.files import write_bytes
from sbmt.experiments.plots.style import BLUE, FAINT, INK, SKY

LIGHT = {
    "panel": "#F6F8FA",
    "cell": "#FFFFFF",
    "line": FAINT,
    "ink": INK,
    "quiet": "#55636C",
    "fresh": SKY,
    "edge": BLUE,
}
DARK = {"panel": "#1A2126", "cell": "#10161A", "line": "#37444D", "ink": "#E3E8EC", "quiet": "#A9B4BC"}
DARK |= {"fresh": "#2A6F9E", "edge": SKY}
"""Colours that every film has. Each stands on a panel of its own, so it can be read on any page."""

Number: TypeAlias = int | float

FADE = 0.2  # seconds that parts take to come and to go
_STYLE = """\
text {{ fill: var(--ink); font: 17px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }}
.title {{ font-size: 19px; font-weight: 650; }}
.label {{ fill: var(--quiet); font-size: 15.5px; }}
.panel {{ fill: var(--panel); }}
.later {{ opacity: 0; }}
svg {{ {light} }}
@media (prefers-color-scheme: dark) {{ svg {{ {dark} }} }}
{own}
svg:target * {{ animation: none !important; }}
@media (prefers-reduced-motion: no-preference) {{
{moves}
}}"""


class Film:
    """Elements of an SVG, and how they move.

    Elements are written as they look when nothing moves: that is what readers see who asked for less motion, and what
    is printed. Class ``later`` is for those that this still leaves out. The address ``film.svg#still`` shows it to all.
    Title and text describe it to those who do not see it. After so many seconds it starts again. Further colours by
    name, used as ``var(--name)``, may differ on dark pages.
    """

    def __init__(
        self,
        title: str,
        text: str,
        *,
        width: int,
        height: int,
        seconds: Number,
        light: Mapping[str, str] | None = None,
        dark: Mapping[str, str] | None = None,
        style: str = "",
    ) -> None:
        self.title, self.text = title, text
        self.width, self.height, self.seconds = width, height, seconds
        self.light, self.dark, self.style = LIGHT | dict(light or {}), DARK | dict(dark or {}), style
        self._elements = [f'<rect class="panel" width="{width}" height="{height}" rx="12"/>']
        self._moves: dict[str, str] = {}  # keyframes, and the class that follows them

    def add(self, *elements: str) -> None:
        """Appends elements; later ones lie on top."""
        self._elements += elements

    def moving(self, *moments: tuple[Number, str]) -> str:
        """A class whose elements take the styles (CSS) of these moments (seconds, ascending), and all between them."""
        steps = [f"{number(100 * at / self.seconds, 3)}% {{ {style} }}" for at, style in moments]
        keyframes = " ".join([f"0% {{ {moments[0][1]} }}", *steps, f"100% {{ {moments[-1][1]} }}"])
        return self._moves.setdefault(keyframes, f"m{len(self._moves)}")

    def shown(self, start: Number, end: Number | None = None, *, fade: Number = FADE) -> str:
        """A class whose elements are there from ``start``, or the first moment, to ``end``, or the last one."""
        moments: list[tuple[Number, str]] = [(0.0, "opacity: 1")]
        if start > 0:
            moments = [(start, "opacity: 0"), (start + fade, "opacity: 1")]
        if end is not None:
            moments += [(end, "opacity: 1"), (min(end + fade, self.seconds), "opacity: 0")]
        return self.moving(*moments)

    def svg(self) -> str:
        """The whole file."""
        light, dark = (
            " ".join(f"--{name}: {c};" for name, c in colours.items()) for colours in (self.light, self.dark)
        )
        every = f"{number(self.seconds)}s linear infinite"
        moves = "\n".join(
            f"@keyframes {name} {{ {keyframes} }} .{name} {{ animation: {name} {every}; }}"
            for keyframes, name in self._moves.items()
        )
        size = f'viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}"'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" id="still" aria-labelledby="title text">',
                f'<title id="title">{escape(self.title)}</title>',
                f'<desc id="text">{escape(self.text)}</desc>',
                f"<style>\n{_STYLE.format(light=light, dark=dark, own=self.style, moves=moves)}\n</style>",
                *self._elements,
                "</svg>\n",
            ]
        )

    def write(self, path: Path) -> None:
        """Writes the file, whole or not at all."""
        write_bytes(path, self.svg().encode())


def box(x: Number, y: Number, width: Number, height: Number, kind: str = "", **attributes: str) -> str:
    """A rectangle of the classes ``kind``; underscores in names of attributes stand for hyphens."""
    given = {"x": x, "y": y, "width": width, "height": height}
    return f"<rect{_written({name: number(value) for name, value in given.items()} | _named(kind, attributes))}/>"


def words(x: Number, y: Number, text: str, kind: str = "", **attributes: str) -> str:
    """A line of text, likewise; ``y`` is its baseline."""
    place = {"x": number(x), "y": number(y)}
    return f"<text{_written(place | _named(kind, attributes))}>{escape(text)}</text>"


def _named(kind: str, attributes: Mapping[str, str]) -> dict[str, str]:
    return ({"class": kind} if kind else {}) | {name.replace("_", "-"): value for name, value in attributes.items()}


def _written(attributes: Mapping[str, str]) -> str:
    return "".join(f' {name}="{escape(value)}"' for name, value in attributes.items())


def number(x: Number, decimals: int = 2) -> str:
    """A number as short as it can be.

    Example:
        >>> number(1.5), number(2.0), number(-0.001)
        ('1.5', '2', '0')
    """
    return f"{round(x, decimals) + 0.0:.{decimals}f}".rstrip("0").rstrip(".")
