"""The oracle of what edges cost: attention on numbers that count the arithmetic done with them."""

from collections import Counter
from dataclasses import dataclass
from math import exp


@dataclass
class Tally:
    """How often each operation was done, by stage of the computation."""

    stage: str = ""

    def __post_init__(self):
        self.found = {}

    def add(self, operation):
        self.found.setdefault(self.stage, Counter())[operation] += 1

    def total(self, stage):
        return sum(self.found[stage].values())


class Counted:
    """A number that reports to a tally."""

    def __init__(self, value, tally):
        self.value, self.tally = value, tally

    def _new(self, value, operation):
        self.tally.add(operation)
        return Counted(value, self.tally)

    def __add__(self, other):
        return self._new(self.value + other.value, "add")

    def __sub__(self, other):
        return self._new(self.value - other.value, "subtract")

    def __mul__(self, other):
        return self._new(self.value * other.value, "multiply")

    def __truediv__(self, other):
        return self._new(self.value / other.value, "divide")

    def exp(self):
        return self._new(exp(self.value), "exp")

    def larger(self, other):
        return self._new(max(self.value, other.value), "compare")


def attend_counting(query, key, value, mask):
    """Softmax attention along the edges of one head, and what it took."""
    tally = Tally()

    def wrap(rows):
        return [[Counted(x, tally) for x in row] for row in rows.tolist()]

    def dot(left, right):
        total = Counted(0.0, tally)
        for a, b in zip(left, right, strict=True):
            total = total + a * b
        return total

    queries, keys, values = map(wrap, (query, key, value))
    scale = Counted(query.shape[1] ** -0.5, tally)
    out = []
    for i, row in enumerate(mask.tolist()):
        reached = [j for j, is_edge in enumerate(row) if is_edge]
        tally.stage = "scores"
        scores = [dot(queries[i], keys[j]) * scale for j in reached]
        tally.stage = "softmax"
        largest, total = Counted(float("-inf"), tally), Counted(0.0, tally)
        for score in scores:
            largest = largest.larger(score)
        weights = [(score - largest).exp() for score in scores]
        for weight in weights:
            total = total + weight
        weights = [weight / total for weight in weights]
        tally.stage = "weights × V"
        out.append([dot(weights, [values[j][c] for j in reached]).value for c in range(value.shape[1])])
    return out, tally
