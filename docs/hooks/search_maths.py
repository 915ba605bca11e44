r"""Removes TeX from the search index, because search results would show it as source.

Short formulas become plain text, for example ``\(n \cdot k\)`` becomes ``n · k``; those with other TeX commands become
an ellipsis. ``on_post_build`` runs after the search plugin has written the index, and before the offline plugin copies
it.
"""

import json
import re
from pathlib import Path

from mkdocs.plugins import event_priority

MARKED = re.compile(r"\\\((.+?)\\\)|\\\[.+?\\\]", re.DOTALL)
IN_NOTEBOOKS = re.compile(r"\$\$.+?\$\$|\$([^$\n]+)\$", re.DOTALL)
CODE = re.compile(r"(<pre>.*?</pre>|<code>.*?</code>)", re.DOTALL)
SIGNS = {"cdot": "· ", "times": "× ", "le": "≤ ", "ge": "≥ ", "approx": "≈ ", "sqrt": "√", "infty": "∞", "quad": " "}
SIGNS |= {"alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "varepsilon": "ε", "lambda": "λ", "rho": "ρ"}
SIGNS |= {"sigma": "σ", "pi": "π", "ell": "ℓ", "ln": "ln ", "log": "log ", "top": "T", "hat": "", "mathcal": ""}


@event_priority(-50)
def on_post_build(config):
    path = Path(config["site_dir"]) / "search" / "search_index.json"
    index = json.loads(path.read_text("utf-8"))
    for entry in index["docs"]:
        for field in ("title", "text"):
            place = entry["location"]
            entry[field] = without_maths(entry[field], place.startswith("notebooks/"), place.startswith("api/"))
    path.write_text(json.dumps(index, ensure_ascii=False, separators=(",", ":")), "utf-8")


def without_maths(text, is_notebook=False, is_api=False):
    """The text of an entry with its formulas as plain text and its code unchanged, except source code on API pages."""
    pattern = IN_NOTEBOOKS if is_notebook else MARKED
    parts = CODE.split(text)
    parts[::2] = [pattern.sub(lambda found: _typed(found[1]), part) for part in parts[::2]]
    if is_api:  # source code contains docstrings
        parts[1::2] = [IN_NOTEBOOKS.sub(lambda found: _typed(found[1]), part) for part in parts[1::2]]
    return "".join(parts)


def _typed(tex):
    """A formula as plain text, or an ellipsis if it is displayed or too complex."""
    known = re.sub(r"\\([a-zA-Z]+) ?", lambda found: SIGNS.get(found[1], found[0]), tex or "\\")
    return "…" if "\\" in known else re.sub(r"[{}^_]", "", known)
