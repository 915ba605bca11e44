"""Tables of the pages, from results that are made up."""

from results.write_tables import ENVIRONMENT

tables = ENVIRONMENT.get_template("tables.jinja").module


def study(title, length, **accuracies):
    """Trials with a run for every accuracy, of densities .1, .2 and so on."""
    runs = [
        {"trial": trial, "config": {"seed": seed, "length": length}, "chance": 0.125}
        | {"test": {"accuracy": x, "density": 0.1 * (seed + 1)}}
        for trial, found in accuracies.items()
        for seed, x in enumerate(found)
    ]
    return {"title": title, "titles": {trial: trial.upper() for trial in accuracies}, "runs": runs}


def rows(table):
    return table.splitlines()[2:]


def test_a_study_has_medians_and_ranges_where_seeds_differ(write):
    write(some=study("", 64, fitted=(0.9, 0.95, 1.0), full=(1.0,)))
    fitted, full = rows(tables.study_table("some"))
    assert fitted == "| FITTED | 3 | 0.950 (0.900 to 1.000) | 0.200 (0.100 to 0.300) |"
    assert full == "| FULL | 1 | 1.000 | 0.100 |"
    assert rows(tables.study_table("some", "full")) == [full]


def test_every_attention_has_a_column_and_masks_their_density(write):
    full = study("", 64, full=(0.3456,))
    sbm = study("", 64, sbm=(0.75, 0.77), **{"random-equal": (0.7, 0.7)})
    write(**{task: sbm if task == "image" else full for task in tables.TASKS})
    assert rows(tables.long_range_table()) == [
        *(f"| {title} | 12.5 | 34.6 | – | – | – | – | – | – |" for title in list(tables.TASKS.values())[:4]),
        "| Image | 12.5 | – | – | 76.0 ± 1.4 | 70.0 ± 0.0 | 15.0 | – | – |",
        "| Pathfinder | 12.5 | 34.6 | – | – | – | – | – | – |",
    ]


# --- time and memory ---


def test_a_sweep_has_milliseconds_where_full_attention_did_not_run(write):
    found = [
        {"n": n, "n_clusters": 128, "density": 16 / n, "kind": "fitted", "sweeps": ["n"], "is_training": way}
        | {"results": {"sbm": {"median": 81.25} | ({"ratio": 100 / n} if n < 4096 else {})}}
        for way in (False, True)
        for n in (4096, 512, 2048)
    ]
    write(bench_fitted={"suites": {"fitted": {"found": {"cases": found}}}})
    assert tables.sweep_table("bench_fitted", "fitted", "n", "tokens", "keys").splitlines() == [
        "| tokens | training,<br>16 keys | inference,<br>16 keys |",
        "|---|---|---|",
        "| 512 | 0.20 | 0.20 |",
        "| 2,048 | 0.049 | 0.049 |",
        "| 4,096 | 81.2 ms | 81.2 ms |",
    ]
