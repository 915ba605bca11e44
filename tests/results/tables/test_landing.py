"""The tables of the landing page and of the page on when to use it, from results that are made up."""

import json

import pytest

from results.measure.landing import DEMO, REFERENCE, config_of, measure_seed
from results.tables.files import Files
from results.tables.landing import TITLES, demo_table, step_ratios
from results.tables.when_to_use import FITTED_LENGTHS, KINDS, bytes_table, fit_line, limits_table, when_to_use_page
from sbmt.experiments.training import SIZES

MACHINE = {"processor": "a processor", "threads": 1, "torch": "9.9"}


def write(root, **files):
    (root / "results").mkdir()
    for name, content in files.items():
        (root / "results" / f"{name}.json").write_text(json.dumps(content), "utf-8")
    return Files(root)


def demo():
    """Two seeds of every attention: accuracies 0.5 and 0.7, one density."""
    config = {"length": 64, "steps": 10}
    test = {"accuracy": 0.5, "density": 0.25}
    runs = [
        {"trial": trial, "config": config | {"seed": seed}, "test": test | {"accuracy": 0.5 + 0.2 * seed}}
        for seed in (0, 1)
        for trial in TITLES
    ]
    return {"runs": runs}


def bench(line):
    """A benchmark whose ratios lie on a line: ``line(kind, n, density, is_training)``."""
    cases = [
        {"kind": kind, "n": n, "density": density, "n_clusters": 128, "is_training": is_training}
        | {"results": {"sbm": {"ratio": line(kind, n, density, is_training)}}}
        for kind in KINDS
        for n, density in ((1024, 0.04), (4096, 0.01), (4096, 0.16), (16384, 0.0025), (4096, 0.5))
        for is_training in (False, True)
    ]
    steps = {"sdpa": {"step": 10.4}, "sbm": {"step": 1234.5}}
    memory = [{"n": 4096, "density": 0.01, "results": steps}]
    memory.append({"n": 65536, "density": 0.01, "results": steps | {"sdpa": {"missing": "too large"}}})
    suites = {"attention": {"found": {"cases": cases}}, "memory": {"found": {"cases": memory}}}
    return {"manifest": MACHINE, "suites": suites}


def straight(kind, n, density, is_training):
    """Structured memberships cost twice as much; a step in training has half of the constant part."""
    return (1 + (kind == "structured")) * (1000 / (1 + is_training) / n + 10 * density)


def test_the_demo_table_has_a_time_for_every_attention(tmp_path):
    seeds = {str(seed): {trial: {"ratio": 1.5 + seed} for trial in TITLES} for seed in (0, 1)}
    results = write(tmp_path, demo=demo(), landing={"seeds": seeds, "manifest": MACHINE}, bench=bench(straight))
    text = demo_table(results)
    assert "| full attention | 0.600 (0.500 to 0.700) | 16.0 | 1 × |" in text
    assert "| **SBM, fitted** | 0.600 (0.500 to 0.700) | 16.0 | 2.0 × (1.5 to 2.5) |" in text
    assert "a processor, one thread, torch 9.9" in text
    assert "| 4,096 tokens | 1 % | 0.22 to 0.44 × |" in text


def test_what_was_not_timed_is_said_to(tmp_path):
    text = demo_table(write(tmp_path, demo=demo()))
    assert "| **SBM, fitted** | 0.600 (0.500 to 0.700) | 16.0 | – |" in text
    assert "run `python results/measure/landing.py`" in text


def test_the_line_is_found_and_what_lies_beyond_it_left_out():
    made_up = bench(straight)
    for is_training, a in ((False, 1000), (True, 500)):
        for kind, factor in zip(KINDS, (1, 2), strict=True):
            assert fit_line(made_up, kind, is_training=is_training) == pytest.approx((factor * a, factor * 10, 1))
    for case in made_up["suites"]["attention"]["found"]["cases"]:
        if case["density"] == 0.5:
            case["results"]["sbm"]["ratio"] = 1e6
    assert fit_line(made_up, KINDS[0], is_training=True) == pytest.approx((500, 10, 1))


def test_limits_are_where_the_line_meets_one():
    rows = limits_table(bench(straight)).splitlines()
    by_length = {row.split(" | ")[0].strip("| "): row for row in rows}
    # Even where (1 + structured) · (1000 / n + 10 ρ) = 1: ρ = (1 − 1000 / n) / 10 and (1 / 2 − 1000 / n) / 10.
    assert by_length["4,096"] == "| 4,096 | 89 % | 2.6 to 7.6 % | 3.8 to 8.8 % |"
    assert by_length["1,024"] == "| 1,024 | 55 % | 0.2 %, or never | 0.1 to 5.1 % |"
    hardly = limits_table(bench(lambda kind, n, density, _: (500 if kind == KINDS[0] else 1023.9) / n + 10 * density))
    assert "| 1,024 | 55 % | 5.1 %, or never | 5.1 %, or never |" in hardly  # and not 0.0 to 5.1 %
    expensive = limits_table(bench(lambda kind, n, density, _: 20000 / n + density))
    assert expensive.count("| never | never |") == 5


def test_what_could_not_be_measured_is_left_out(tmp_path):
    made_up = bench(straight)
    assert bytes_table(made_up).splitlines()[2:] == ["| 4,096 | 1 % | 10 | 1,234 |"]
    assert step_ratios(made_up, 2048, 0.02) == "–"
    del made_up["suites"]["memory"]
    assert set(when_to_use_page(write(tmp_path, bench=made_up))) == {"when-limits", "when-seconds"}


def test_published_runs_name_their_configuration():
    runs = json.loads(DEMO.read_text("utf-8"))["runs"]
    configs = {run["trial"]: config_of(run["config"]) for run in runs}
    full = SIZES["demo"].override(attention="full", learning_rate=3e-3, cooldown=333, seed=configs[REFERENCE].seed)
    assert configs[REFERENCE] == full
    assert configs["fitted"].options.preset == "fitted" and configs["fitted"].block_model_rate == 1e-2


def test_steps_are_timed_in_turn():
    small = SIZES["demo"].override(steps=5, length=8, batch_size=2)
    runs = [
        {"trial": trial, "config": small.override(**settings).to_dict()}
        for trial, settings in ((REFERENCE, {"attention": "full"}), ("fitted", {"preset": "fitted", "n_clusters": 4}))
    ]
    found = measure_seed(runs)
    assert set(found) == {REFERENCE, "fitted"}
    assert found[REFERENCE]["ratio"] == 1 and found["fitted"]["rounds"] == 4


def test_fitted_masks_are_timed_at_every_length(tmp_path):
    cases = [
        {
            "kind": kind,
            "n": n,
            "density": 16 / n,
            "dtype": "float32",
            "is_training": is_training,
            "results": {"sbm": {"ratio": ratio / n}},
        }
        for kind, ratio in (("fitted", 1024), ("shared", 512))
        for n in FITTED_LENGTHS
        for is_training in (False, True)
        if n > 512 or kind == "fitted"
    ]
    results = write(tmp_path, bench_fitted={"suites": {"fitted": {"found": {"cases": cases}}}})
    rows = when_to_use_page(results)["when-fitted"].splitlines()
    assert rows[2] == "| 512 | 2.00 | – | 2.00 | – |" and rows[-1] == "| 16,384 | 0.06 | 0.03 | 0.06 | 0.03 |"
