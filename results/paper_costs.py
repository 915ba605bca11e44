"""What the paper says about costs (``results/paper_costs.toml``), beside this library's counts."""

import re
import tomllib
from pathlib import Path
from typing import Any

from sbmt.cost import count_operations
from sbmt.experiments.costs import METHODS, Column, build_model

PAPER = tomllib.loads((Path(__file__).parent / "paper_costs.toml").read_text("utf-8"))
POWERS = {"": 1, "²": 2, "³": 3, "⁴": 4}


def terms(formula: str) -> list[dict[str, int]]:
    """The power of each letter in each term, without numbers, sequences b, heads h, steps i and width w."""
    found = []
    for product in (product for product in formula.split(" + ") if product != "0"):
        powers: dict[str, int] = {}
        for letter, power in re.findall(r"([ac-gj-vx-z])([²³⁴]?)", product):
            powers[letter] = powers.get(letter, 0) + POWERS[power]
        found.append(powers)
    return found


def degree(formula: str, letter: str) -> int:
    """The exponent with which a formula grows in a letter alone; the number of chunks, s, grows with n."""
    return max(sum(term.get(x, 0) for x in (letter, *"s" * (letter == "n"))) for term in terms(formula))


def beyond(formula: str, bound: str) -> list[str]:
    """The terms that no constant times one term of the bound exceeds for all sizes ≥ 1."""
    marks = {power: mark for mark, power in POWERS.items()}
    found = []
    for term in terms(formula):
        if not any(all(power <= other.get(letter, 0) for letter, power in term.items()) for other in terms(bound)):
            found.append("·".join(letter + marks[power] for letter, power in term.items()))
    return list(dict.fromkeys(found))


def counted(method: str, parts: tuple[str, ...] = ("",)) -> str:
    """Products and elementwise operations of an attention, restricted to parts whose names begin like this."""
    ranks = dict.fromkeys(("n_features", "n_landmarks", "n_projected"), 8)
    model = build_model(method, Column("", 64, 0.5), n_layers=1, n_clusters=8, **ranks)
    rows = count_operations(model, 64, density=0.5).attention().rows
    found = [text for row in rows if row.part.startswith(parts) for text in (row.flops, row.elementwise)]
    return " + ".join(found).replace("N", "n")  # N is n rounded up to whole chunks


def compare_with_claims() -> dict[str, dict[str, Any]]:
    """Our counts beside Table 5, part by part for Algorithm 1, and beside Table 6.

    Each has the claim, the exponents claimed and counted of the letters n, m, k and d, the terms of our count that
    exceed the claim, and those of the claim that our count does not need.
    """
    rows = {
        name: (row["title"], row["time"], counted("sbm-algorithm-1", tuple(row["parts"])))
        for name, row in PAPER["table_5"].items()
    }
    rows |= {name: (METHODS[name][0], claim, counted(name)) for name, claim in PAPER["table_6"].items()}
    verdicts = {}
    for name, (title, claimed, ours) in rows.items():
        both = {letter: (degree(claimed, letter), float(degree(ours, letter))) for letter in "nmkd"}
        verdicts[name] = {"title": title, "claimed": claimed, "exponents": {x: d for x, d in both.items() if any(d)}}
        verdicts[name] |= {"beyond": beyond(ours, claimed), "unused": beyond(claimed, ours)}
    return verdicts
