"""Tables of the pages, from results that are made up."""

from results.tables import KINDS
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


def bench(line):
    """A benchmark whose ratios lie on a line up to the largest density: ``line(kind, n, density, is_training)``."""
    cases = [
        {"kind": kind, "n": n, "density": density, "n_clusters": 128, "is_training": is_training}
        | {"results": {"sbm": {"ratio": 1e6 if density == 0.5 else line(kind, n, density, is_training)}}}
        for kind in KINDS
        for n, density in ((1024, 0.04), (4096, 0.01), (4096, 0.16), (16384, 0.0025), (4096, 0.5))
        for is_training in (False, True)
    ]
    return {"suites": {"attention": {"found": {"cases": cases}}}}


def straight(kind, n, density, is_training):
    """Structured memberships cost twice as much; a step in training has half of the constant part."""
    return (1 + (kind == "structured")) * (1000 / (1 + is_training) / n + 10 * density)


def test_limits_are_where_the_line_meets_one(write):
    write(bench=bench(straight))
    by_length = {row.split(" | ")[0].strip("| "): row for row in rows(tables.limits_table())}
    # Even where (1 + structured) · (1000 / n + 10 ρ) = 1: ρ = (1 − 1000 / n) / 10 and (1 / 2 − 1000 / n) / 10.
    assert by_length["4,096"] == "| 4,096 | 89 % | 2.6 to 7.6 % | 3.8 to 8.8 % |"
    assert by_length["1,024"] == "| 1,024 | 55 % | 0.2 %, or never | 0.1 to 5.1 % |"
    write(bench=bench(lambda kind, n, density, _: (500 if kind == KINDS[0] else 1023.9) / n + 10 * density))
    assert "| 1,024 | 55 % | 5.1 %, or never | 5.1 %, or never |" in tables.limits_table()  # and not 0.0 to 5.1 %
    write(bench=bench(lambda kind, n, density, _: 20000 / n + density))
    assert tables.limits_table().count("| never | never |") == 5
