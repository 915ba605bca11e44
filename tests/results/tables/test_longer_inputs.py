"""The tables of longer inputs, from results that are made up."""

from results.tables.longer_inputs import FEW, MANY, longer_table, same_share_table

MEMORY = {"full": {"added": 4.0}, "fitted": {"added": 6.0}}


def at(length, kinds):
    found = {kind: {"density": 0.05 + i / 100, "lost": i / 100, "lost_error": 0.0123} for i, kind in enumerate(kinds)}
    found["full"] = {"accuracy": 0.75}
    return {"length": length, "kinds": found, "times": {"fitted": {"ratio": 0.5}}, "memory": MEMORY}


TASKS = {"Text": {"lengths": [at(256, FEW), at(1024, FEW + MANY)]}}


def test_masks_with_as_many_edges_per_query():
    lines = longer_table(TASKS).split("\n")
    rest = "0.750 | 5.0 % | 0.0 ± 1.2 | 1.0 ± 1.2 | 2.0 ± 1.2 | 0.50 × | 1.5 × |"
    assert lines[2:] == [f"| Text | 256 | {rest}", f"| Text | 1,024 | {rest}"]


def test_masks_with_as_large_a_share_of_the_pairs():
    assert same_share_table(TASKS).split("\n")[2:] == ["| Text | 1,024 | 0.750 | 8.0 % | 3.0 ± 1.2 | 4.0 ± 1.2 |"]
