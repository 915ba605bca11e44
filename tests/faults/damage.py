"""Ways in which a file comes to hold something else than was written."""

import pickle
from pathlib import Path

import numpy as np


class Bomb:
    """Makes a file when it is unpickled."""

    def __reduce__(self):
        return Path.touch, (Path("exploded"),)


def cuts(content):
    """What is left of a file that was cut, by what was done."""
    n = len(content)
    return {f"cut at {at}": content[:at] for at in sorted({0, 1, n // 3, n // 2, n - 1}) if 0 <= at < n}


def flips(content, n_flips, seed=0):
    """The content with one bit changed, by place."""
    rng = np.random.default_rng([seed, len(content)])
    found = {}
    for place in sorted(rng.choice(len(content), min(n_flips, len(content)), replace=False).tolist()):
        bit = int(rng.integers(8))
        changed = bytes([content[place] ^ 1 << bit])
        found[f"bit {bit} of byte {place}"] = content[:place] + changed + content[place + 1 :]
    return found


def damages(content, n_flips):
    """Both, and other files of the same name."""
    texts = {text[:9]: text.encode() for text in ("{}", "[]", "null", '"x"', "[" * 5000)}
    others = {"a pickle": pickle.dumps(Bomb()), "zeros": bytes(len(content)), "twice": content * 2}
    return cuts(content) | flips(content, n_flips) | texts | others
