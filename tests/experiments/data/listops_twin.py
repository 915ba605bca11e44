"""ListOps as it is written, and the exact law of its shapes."""

import itertools
from collections import Counter

import numpy as np

from sbmt.experiments.data.listops import OPERATORS, TOKENS


def encoded(text):
    """The ids of a written expression; parentheses, as in the original files, only repeat its structure."""
    tokens = text.replace("(", "").replace(")", "").replace("]", "X").split()
    return bytes(1 + TOKENS.index(token) for token in tokens)


def skeleton_law(law, depth=1):
    """P of every tree with its digits rubbed out, ``{text: probability}``."""
    if depth == law.max_depth:
        return {"d": 1.0}
    below = skeleton_law(law, depth + 1)
    found = Counter({"d": law.digit_share})
    for n_children in range(2, law.max_args + 1):
        each = (1 - law.digit_share) / (law.max_args - 1) / len(OPERATORS)
        for children in itertools.product(below, repeat=n_children):
            p = each * np.prod([below[child] for child in children])
            for operator in OPERATORS:
                found[f"{operator} {' '.join(children)} ]"] += p
    return found
