"""The tables of the page on language tasks, from results that are made up."""

from results.tables.language import behind_table


def test_nats_behind_come_with_their_error_and_nothing_is_held_against_itself():
    titles = {"full": "full attention", "window": "window", "fitted": "fitted", "random": "random"}
    behind = {
        "full": {trial: {"mean": -0.5, "error": 0.02} for trial in ("window", "fitted", "random")},
        "window": {trial: {"mean": 0.25, "error": 0.0104} for trial in ("full", "fitted", "random")},
        "random": {"fitted": {"mean": -0.1234, "error": 0.03}},
    }
    assert behind_table(behind, titles).split("\n") == [
        "| nats behind | full attention | the window | random masks |",
        "|---|---|---|---|",
        "| full attention | – | 0.250 ± 0.010 | – |",
        "| window | -0.500 ± 0.020 | – | – |",
        "| fitted | -0.500 ± 0.020 | 0.250 ± 0.010 | -0.123 ± 0.030 |",
        "| random | -0.500 ± 0.020 | 0.250 ± 0.010 | – |",
    ]
