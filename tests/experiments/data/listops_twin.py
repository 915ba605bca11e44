"""ListOps once more, recursive and slow: trees as nested tuples, and the exact laws that their rules imply."""

import itertools
from collections import Counter

import numpy as np

from sbmt.experiments.data.listops import OPERATORS


def generate_tree(draw, law, depth=1):
    """A digit, or ``(operator, children)``; ``draw`` is a ``random.Random``."""
    if depth == law.max_depth or draw.random() < law.digit_share:
        return draw.randrange(10)
    children = [generate_tree(draw, law, depth + 1) for _ in range(draw.randint(2, law.max_args))]
    return draw.choice(OPERATORS), children


def length_of(tree):
    return 1 if isinstance(tree, int) else 2 + sum(map(length_of, tree[1]))


OPERATIONS = {"[MIN": min, "[MAX": max, "[MED": lambda x: int(np.median(x)), "[SM": lambda x: sum(x) % 10}


def value_of(tree):
    if isinstance(tree, int):
        return tree
    return OPERATIONS[tree[0]]([value_of(child) for child in tree[1]])


def written(tree):
    """As in the original files: every operator takes its values one by one, in parentheses."""
    if isinstance(tree, int):
        return str(tree)
    text = tree[0]
    for child in tree[1]:
        text = f"( {text} {written(child)} )"
    return f"( {text} ] )"


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
