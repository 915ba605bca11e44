"""Ways to damage the content of a file."""

import pickle
from pathlib import Path

import numpy as np


class Bomb:
    """An object that creates a file when it is unpickled."""

    def __reduce__(self):
        return Path.touch, (Path("exploded"),)


def cuts(content):
    """Returns the remainders of a truncated file, by description."""
    n = len(content)
    return {f"cut at {at}": content[:at] for at in sorted({0, 1, n // 3, n // 2, n - 1}) if 0 <= at < n}


def flips(content, n_flips, seed=0):
    """Returns copies of the content with one bit changed, by position."""
    rng = np.random.default_rng([seed, len(content)])
    found = {}
    for place in sorted(rng.choice(len(content), min(n_flips, len(content)), replace=False).tolist()):
        bit = int(rng.integers(8))
        changed = bytes([content[place] ^ 1 << bit])
        found[f"bit {bit} of byte {place}"] = content[:place] + changed + content[place + 1 :]
    return found


def damages(content, n_flips):
    """Returns both kinds of damage, and other files of the same name."""
    texts = {text[:9]: text.encode() for text in ("{}", "[]", "null", '"x"', "[" * 5000)}
    others = {"a pickle": pickle.dumps(Bomb()), "zeros": bytes(len(content)), "twice": content * 2}
    return cuts(content) | flips(content, n_flips) | texts | others
