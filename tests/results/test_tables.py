"""Tables of the pages, from results that are made up."""

import pytest

from results.tables import (
    KINDS,
    TASKS,
    attention_seen_table,
    behind_table,
    bench_table,
    demo_table,
    fit_line,
    fitted_gain_table,
    limits_table,
    long_range_table,
    machines_table,
    paired_table,
    step_ratios,
    study_table,
    unseen_table,
)


def study(title, length, **accuracies):
    """Trials with a run for every accuracy, of densities .1, .2 and so on."""
    runs = [
        {"trial": trial, "n_parameters": 1234, "config": {"seed": seed, "length": length}, "chance": 0.125}
        | {"test": {"accuracy": x, "density": 0.1 * (seed + 1), "loss": 0.5}}
        for trial, found in accuracies.items()
        for seed, x in enumerate(found)
    ]
    return {"title": title, "titles": {trial: trial.upper() for trial in accuracies}, "runs": runs}


def rows(table):
    return table.splitlines()[2:]


def test_a_study_has_medians_and_ranges_where_seeds_differ(write):
    write(some=study("", 64, fitted=(0.9, 0.95, 1.0), full=(1.0,)))
    assert rows(study_table("some")) == [
        "| FITTED | 1,234 | 3 | 0.950 (0.900 to 1.000) | 0.200 (0.100 to 0.300) | 0.500 |",
        "| FULL | 1,234 | 1 | 1.000 | 0.100 | 0.500 |",
    ]


def test_keys_per_query_are_those_of_the_median_density(write):
    files = {"fresh-64": study("fresh", 64, fitted=(0.9, 1.0)), "fresh-256": study("", 256), "twins": study("", 30)}
    write(**files)
    assert rows(unseen_table()) == ["| fresh | FITTED | 2 | 0.950 (0.900 to 1.000) | 9.6 | 0.150 |"]


def test_densities_are_shown_where_a_mask_hides_something(write):
    full = study("", 64, full=(0.3456,))
    full["runs"][0]["test"]["density"] = 1.0
    sbm = study("", 64, sbm=(0.75, 0.77))
    write(**{task: sbm if task == "image" else full for task in TASKS})
    assert rows(long_range_table()) == [
        "| FULL | 34.6 | 34.6 | 34.6 | 34.6 | – | 34.6 |",
        "| SBM | – | – | – | – | 76.0 ± 1.4 (15.0) | – |",
        "| always the commonest label | 12.5 | 12.5 | 12.5 | 12.5 | 12.5 | 12.5 |",
    ]


def test_points_lost_come_with_their_error(write):
    titles = {"full": "full attention", "fitted-2": "fitted", "random-2": "random"}
    nothing = {"lost": {}, "ahead": {}, "ahead_of_window": {}}
    found = {
        "lost": {"fitted-2": {"mean": 0.0123, "error": 0.004}, "random-2": {"mean": -0.02, "error": 0.01}},
        "ahead": {"fitted-2": {"mean": -0.0323, "error": 0.0055}},
        "ahead_of_window": {"fitted-2": {"mean": 0.01, "error": 0.002}},
    }
    studies = {f"{task}-edges": found if task == "text" else nothing for task in TASKS}
    write(paired={"studies": studies}, **{name: {"titles": titles} for name in studies})
    assert rows(paired_table()) == [
        "| fitted | – | 1.2 ± 0.4 | – | – | – | – |",
        "| random | – | -2.0 ± 1.0 | – | – | – | – |",
        "| *fitted: ahead of random ones by* | – | -3.2 ± 0.5 | – | – | – | – |",
        "| *fitted: ahead of the window by* | – | 1.0 ± 0.2 | – | – | – | – |",
    ]


def test_nats_behind_are_not_held_against_themselves(write):
    behind = {"full": {"window": {"mean": -0.5, "error": 0.02}}, "window": {"full": {"mean": 0.25, "error": 0.0104}}}
    titles = {"full": "full attention", "window": "window"}
    write(**{"mlm-edges": {"titles": titles}, "paired_blocks": {"behind": behind | {"random": {}}}})
    expected = ["| full attention | – | 0.250 ± 0.010 | – |", "| window | -0.500 ± 0.020 | – | – |"]
    assert rows(behind_table()) == expected


def test_masks_are_shown_at_a_twentieth_of_the_pairs(write):
    def network(mass, keys):
        def kind(name, share):
            numbers = {"attention_mass": mass * share, "error": 2 * share, "lost": 0.1 * share, "lost_error": 0.0123}
            return {"kind": name, **numbers}

        levels = [[kind(name, share) for name in ("fitted", "oracle")] for share in (0.05, 0.5)]
        return {"shares": [0.05, 0.5], "mean_keys": keys, "full": {"accuracy": 0.75}, "levels": levels}

    networks = {"Text": network(4.0, 255.4), "Image": network(2.0, 256)}
    networks["Image"]["tuned"] = network(3.0, 256) | {"full": {"accuracy": 0.8}}
    write(attention_mass={"networks": networks})
    assert rows(attention_seen_table()) == ["| fitted | 20 % | 10 % |", "| oracle | 20 % | 10 % |"]
    assert rows(attention_seen_table("error"))[0] == "| fitted | 0.10 | 0.10 |"
    accuracy = "| full attention's accuracy | 0.750 | 0.750 |"
    assert rows(attention_seen_table("lost"))[:3] == [
        "| tokens | 255 | 256 |",
        accuracy,
        "| fitted | 0.5 ± 1.2 | 0.5 ± 1.2 |",
    ]
    assert rows(attention_seen_table("lost", "tuned"))[1] == "| full attention's accuracy | 0.800 |"


# --- time and memory ---


def bench(line):
    """A benchmark whose ratios lie on a line: ``line(kind, n, density, is_training)``."""
    cases = [
        {"kind": kind, "n": n, "density": density, "n_clusters": 128, "is_training": is_training}
        | {"results": {"sbm": {"ratio": line(kind, n, density, is_training)}}}
        for kind in KINDS
        for n, density in ((1024, 0.04), (4096, 0.01), (4096, 0.16), (16384, 0.0025), (4096, 0.5))
        for is_training in (False, True)
    ]
    return {"suites": {"attention": {"found": {"cases": cases}}}}


def straight(kind, n, density, is_training):
    """Structured memberships cost twice as much; a step in training has half of the constant part."""
    return (1 + (kind == "structured")) * (1000 / (1 + is_training) / n + 10 * density)


def test_the_line_is_found_and_what_lies_beyond_it_left_out(write):
    made_up = bench(straight)
    write(bench=made_up)
    for is_training, a in ((False, 1000), (True, 500)):
        for kind, factor in zip(KINDS, (1, 2), strict=True):
            assert fit_line(kind, is_training=is_training) == pytest.approx((factor * a, factor * 10, 1))
    for case in made_up["suites"]["attention"]["found"]["cases"]:
        if case["density"] == 0.5:
            case["results"]["sbm"]["ratio"] = 1e6
    write(bench=made_up)
    assert fit_line(KINDS[0], is_training=True) == pytest.approx((500, 10, 1))


def test_limits_are_where_the_line_meets_one(write):
    write(bench=bench(straight))
    by_length = {row.split(" | ")[0].strip("| "): row for row in rows(limits_table())}
    # Even where (1 + structured) · (1000 / n + 10 ρ) = 1: ρ = (1 − 1000 / n) / 10 and (1 / 2 − 1000 / n) / 10.
    assert by_length["4,096"] == "| 4,096 | 89 % | 2.6 to 7.6 % | 3.8 to 8.8 % |"
    assert by_length["1,024"] == "| 1,024 | 55 % | 0.2 %, or never | 0.1 to 5.1 % |"
    write(bench=bench(lambda kind, n, density, _: (500 if kind == KINDS[0] else 1023.9) / n + 10 * density))
    assert "| 1,024 | 55 % | 5.1 %, or never | 5.1 %, or never |" in limits_table()  # and not 0.0 to 5.1 %
    write(bench=bench(lambda kind, n, density, _: 20000 / n + density))
    assert limits_table().count("| never | never |") == 5


def test_what_could_not_be_measured_is_left_out(write):
    write(bench=bench(straight))
    assert step_ratios(4096, 0.01) == "0.22 to 0.44" and step_ratios(2048, 0.02) == "–"
    write(gpu__bench={"suites": {}})
    with pytest.raises(LookupError, match="gpu-training"):
        bench_table("gpu/bench", "gpu-training")


def test_the_demo_has_a_time_for_every_attention(write):
    trials = dict.fromkeys(("full", "sbm", "fitted", "random-equal"), (0.5, 0.7))
    write(demo=study("", 64, **trials), landing={"seeds": {"0": {trial: {"ratio": 1.5} for trial in trials}}})
    found = rows(demo_table())
    assert found[0] == "| full attention | 0.600 (0.500 to 0.700) | 9.6 (6.4 to 12.8) | 1 × |"
    assert found[2] == "| **SBM, fitted** | 0.600 (0.500 to 0.700) | 9.6 (6.4 to 12.8) | 1.5 × |"


def of_a_processor(name, date, ratios):
    """A result of the suite ``fitted`` with these ratios of both modes by number of tokens."""
    cases = [
        {"kind": "fitted", "n": n, "density": 16 / n, "is_training": is_training, "sweeps": ["n"],
         "results": {"sdpa": {"median": 12.345},
                     "sbm": {"median": 1.0, "ratio": ratio, "ratio_low": 0.9 * ratio, "ratio_high": 1.1 * ratio}}}
        for n, ratio in ratios.items() for is_training in (False, True)
    ]  # fmt: skip
    return {"manifest": {"processor": name, "date": date}, "suites": {"fitted": {"found": {"cases": cases}}}}


def test_processors_stand_side_by_side(write):
    ratios = {512: 2.0, 1024: 1.0, 2048: 0.5, 4096: 0.04, 8192: 0.02, 16384: 0.01}
    here = of_a_processor("One", "2026-01-02", ratios)
    there = of_a_processor("Other", "2026-01-01", {n: 2 * ratio for n, ratio in ratios.items()})
    write(bench_fitted=here, machines__other__bench_fitted=there)
    found = machines_table("fitted").splitlines()
    assert found[0] == "| | n | A: SDPA, ms | A: ours / SDPA | B: SDPA, ms | B: ours / SDPA |"
    assert found[2] == "| fitted, training | 512 | 12.3 | 2.00 (1.80–2.20) | 12.3 | 4.00 (3.60–4.40) |"
    assert found[5] == "| fitted, training | 4,096 | 12.3 | 0.040 (0.036–0.044) | 12.3 | 0.080 (0.072–0.088) |"
    assert found[-1] == "*A: One, 2026-01-02; B: Other, 2026-01-01.*"
    gain = "0.2 to 0.5 | 0.5 to 1.0 | 1.0 to 2.0 | 12.5 to 25.0 | 25.0 to 50.0 | 50.0 to 100.0 |"
    assert rows(fitted_gain_table()) == [f"| training step | {gain}", f"| forward pass | {gain}"]
