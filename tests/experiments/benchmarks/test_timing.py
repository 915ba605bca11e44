"""Tests timing with a simulated clock, so that results do not depend on actual speed."""

import pytest

from sbmt.experiments.benchmarks import timing
from sbmt.experiments.benchmarks.timing import Entry, race


class Clock:
    """A clock that advances only when a contestant tells it to, and records which contestants ran."""

    def __init__(self):
        self.now, self.ran = 0.0, []

    def entry(self, name, *seconds, preparation=0.0):
        """Returns a contestant that takes the given times in turn, and then repeats the last."""
        times = list(seconds)

        def run(_):
            self.ran.append(name)
            self.now += times.pop(0) if len(times) > 1 else times[0]

        return Entry(run, lambda: setattr(self, "now", self.now + preparation))


@pytest.fixture
def clock(monkeypatch):
    ours = Clock()
    monkeypatch.setattr(timing, "perf_counter", lambda: ours.now)
    return ours


@pytest.mark.parametrize(("seconds", "rounds"), [(0.1, 3), (12.0, 4), (1e9, 5)])
def test_contestants_take_turns_in_both_orders_until_time_or_rounds_end(clock, seconds, rounds):
    found = race({name: clock.entry(name, 1.0) for name in "abc"}, reference="a", seconds=seconds, least=3, most=5)
    assert "".join(clock.ran) == "abc" + ("abccba" * 3)[: 3 * rounds]  # the first round does not count
    assert [one["rounds"] for one in found.values()] == [rounds] * 3


def test_a_slow_moment_of_the_machine_does_not_change_the_ratio(clock):
    entries = {"a": clock.entry("a", 99, 1, 10, 1), "b": clock.entry("b", 99, 2, 20, 2, preparation=7.0)}
    found = race(entries, reference="a", seconds=1.0, least=3)
    times = {"median": 2000.0, "low": 2000.0, "high": 11000.0, "rounds": 3}
    assert found["b"] == times | {"ratio": 2.0, "ratio_low": 2.0, "ratio_high": 2.0}
    assert found["a"]["ratio"] == 1.0
