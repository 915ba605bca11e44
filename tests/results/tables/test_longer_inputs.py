"""The table of longer inputs, from results that are made up."""

from results.tables.longer_inputs import KINDS, longer_table


def at(length, kinds):
    found = {kind: {"density": 0.05 + i / 100, "lost": i / 100, "lost_error": 0.0123} for i, kind in enumerate(kinds)}
    found["full"] = {"accuracy": 0.75}
    memory = {"full": {"added": 4.0}, "fitted": {"added": 1.0}}
    return {"length": length, "kinds": found, "times": {"fitted": {"ratio": 0.5}}, "memory": memory}


def test_masks_with_as_many_edges_and_with_as_large_a_share():
    lines = longer_table({"Text": {"lengths": [at(256, KINDS[:3]), at(1024, KINDS)]}}).split("\n")
    start = "0.750 | 5.0 % | 0.0 ± 1.2 | 1.0 ± 1.2 | 2.0 ± 1.2 |"
    assert lines[2] == f"| Text | 256 | {start}  |  |  | 0.50 × | 0.2 × |"
    assert lines[3] == f"| Text | 1,024 | {start} 8.0 % | 3.0 ± 1.2 | 4.0 ± 1.2 | 0.50 × | 0.2 × |"
