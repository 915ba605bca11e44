"""The tables of fitted masks, from results that are made up."""

import json

from results.tables.files import Files
from results.tables.studies import fitted_page, unseen_table


def study(title, length, **accuracies):
    """Trials with a run for every accuracy, of densities .1, .2 and so on."""
    runs = [
        {
            "trial": trial,
            "config": {"seed": seed, "length": length},
            "test": {"accuracy": x, "density": 0.1 * (seed + 1)},
        }
        for trial, found in accuracies.items()
        for seed, x in enumerate(found)
    ]
    return {"title": title, "titles": {trial: trial.upper() for trial in accuracies}, "runs": runs}


FRESH = study("fresh values", 64, fitted=(0.9, 0.95, 1.0), full=(1.0,))
TWINS = study("twins", 30, window=(0.5, 0.75))


def test_what_was_never_seen_has_a_row_for_every_trial():
    assert unseen_table([FRESH, TWINS]).split("\n")[2:] == [
        "| fresh values | FITTED | 3 | 0.950 (0.900 to 1.000) | 12.8 | 0.200 |",
        "| fresh values | FULL | 1 | 1.000 (1.000 to 1.000) | 6.4 | 0.100 |",
        "| twins | WINDOW | 2 | 0.625 (0.500 to 0.750) | 4.5 | 0.150 |",
    ]


def test_tables_appear_with_their_results(tmp_path):
    (tmp_path / "results").mkdir()
    assert fitted_page(Files(tmp_path)) == {}
    (tmp_path / "results" / "twins.json").write_text(json.dumps(TWINS), "utf-8")
    assert fitted_page(Files(tmp_path)) == {"unseen": unseen_table([TWINS])}
    (tmp_path / "results" / "fitted-64.json").write_text(json.dumps(FRESH), "utf-8")
    tables = fitted_page(Files(tmp_path))
    assert set(tables) == {"fitted", "unseen"}
    assert tables["fitted"].split("\n")[2] == "| 64 | FITTED | 3 | 0.950 (0.900 to 1.000) | 12.8 | 0.200 |  |"
