"""The tables of the page on long-range tasks, from results that are made up."""

from results.tables.long_range import accuracy_table, paired_table


def run(trial, accuracy, density):
    return {"trial": trial, "test": {"accuracy": accuracy, "density": density}, "chance": 0.125}


def test_densities_are_shown_where_a_mask_hides_something():
    titles = {"full": "full attention", "sbm": "SBM"}
    topics = [run("full", 0.75, 1.0), run("full", 0.77, 1.0), run("sbm", 0.5, 0.25)]
    results = {
        "listops": {"titles": titles, "runs": [run("full", 0.3456, 1.0)]},
        "retrieval-topics": {"titles": titles, "runs": topics},
    }
    assert accuracy_table(results).split("\n") == [
        "| | ListOps | Retrieval,<br>topics |",
        "|---|---|---|",
        "| full attention | 34.6 | 76.0 ± 1.4 |",
        "| SBM | – | 50.0 (25.0) |",
        "| always the commonest label | 12.5 | 12.5 |",
    ]


def test_points_lost_come_with_their_error():
    lost = {"fitted-2": {"mean": 0.0123, "error": 0.004}, "random-2": {"mean": -0.02, "error": 0.01}}
    ahead = {"fitted-2": {"mean": -0.0323, "error": 0.0055}}
    kinds = {"lost": lost, "ahead": ahead, "ahead_of_window": {"fitted-2": {"mean": 0.01, "error": 0.002}}}
    titles = {"full": "full attention", "fitted-2": "fitted", "random-2": "random"}
    assert paired_table({"listops-edges": kinds}, titles).split("\n") == [
        "| | ListOps |",
        "|---|---|",
        "| fitted | 1.2 ± 0.4 |",
        "| random | -2.0 ± 1.0 |",
        "| *fitted: ahead of random ones by* | -3.2 ± 0.5 |",
        "| *fitted: ahead of the window by* | 1.0 ± 0.2 |",
    ]
