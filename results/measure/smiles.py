"""Generates chemical reactions as SMILES from templates in ``results/reactions.toml``, and parses them as graphs."""

import re
import tomllib
from itertools import product
from random import Random

import torch
from jaxtyping import Bool
from torch import Tensor

from results.measure.common import RESULTS
from sbmt.errors import SbmtError

TOKEN = re.compile(r"\[[^\]]+\]|Br|Cl|[BCNOPSFI]|[bcnops]|\*|%\d\d|\d|>>|[-=#:~./\\()]")
ELEMENT = re.compile(r"\[?\d*(se|te|as|si|[A-Z][a-z]?|[a-z]|\*)")
REACTIONS = tomllib.loads((RESULTS / "reactions.toml").read_text("utf-8"))


def reactions(part: int, per_template: int) -> list[str]:
    """Generates reactions from all templates in random order. Parts 0 and 1 have different substituents."""
    draw, found = Random(part), []
    aromatic, aliphatic = REACTIONS["substituents"].values()
    for template in REACTIONS["templates"].values():
        pairs = product(aromatic[part::2], aliphatic[part::2])
        made = list(dict.fromkeys(template.format(a=a, b=b) for a, b in pairs))
        found += draw.sample(made, min(per_template, len(made)))
    return draw.sample(found, len(found))


def tokens_of(smiles: str) -> list[str]:
    """Splits a reaction's SMILES into tokens, one per atom or other symbol."""
    if rest := TOKEN.sub("", smiles):
        raise SbmtError("a SMILES string", f"{rest[0]!r} in {smiles!r}", "remove what is not part of the reaction")
    return TOKEN.findall(smiles)


def atoms_of(tokens: list[str]) -> tuple[list[int], list[str], Bool[Tensor, "atoms atoms"]]:
    """Returns the positions of atoms among the tokens, their elements, and a matrix of their bonds."""
    is_bonded = torch.zeros(len(tokens), len(tokens), dtype=torch.bool)
    elements: dict[int, str] = {}
    branches: list[int | None] = []  # positions of the atoms at which branches start
    rings: dict[str, int | None] = {}
    last: int | None = None
    for i, token in enumerate(tokens):
        other = None
        if atom := ELEMENT.match(token):
            elements[i] = atom[1].capitalize()
            last, other = i, last
        elif token == "(":
            branches.append(last)
        elif token == ")":
            last = branches.pop()
        elif token in (".", ">>", "~"):
            last = None
        elif token in rings:
            other = rings.pop(token)
        elif token[-1].isdigit():
            rings[token] = last
        if other is not None:
            is_bonded[last, other] = is_bonded[other, last] = True
    places = list(elements)
    return places, list(elements.values()), is_bonded[places][:, places]
