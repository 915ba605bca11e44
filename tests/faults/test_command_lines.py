"""Command lines with mistakes: one line that says what was expected, exit code 2, and nothing written."""

import os

import pytest

pytestmark = pytest.mark.bad_input


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("cost --json cache", "cache to be a regular file, got a folder"),
        ("bench --quick --json .", ". to be a regular file, got a folder"),
        (f"evaluate repeated --seed {1 << 63}", "seed in [0, 2⁶²)"),
        (f"train repeated-tokens --steps {10**30}", "steps < 2³¹"),
        ("evaluate nowhere", "the folder of a run"),
        ("evaluate answers.tsv", "answers.tsv"),
        ("inspect mlm", "a run on labelled examples"),
        ("predict listops answers.tsv", "a run of sbmt train glue"),
        ("train listops --data nowhere", "nowhere"),
        ("predict sst2 answers.tsv --output answers.tsv/new.tsv", "cannot write"),
    ],
)
def test_mistakes_are_answered_in_a_line(here, command_line, line, words):
    before = sorted(os.listdir(here))
    code, _, err = command_line(line)
    assert (
        code == 2 and words in err and err.count("\n") == 1 and err.startswith(("sbmt: expected ", "sbmt: cannot "))
    ), err
    assert sorted(os.listdir(here)) == before
