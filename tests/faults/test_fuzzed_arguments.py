"""Command lines nobody should write, a few of them, and those that once ended in a traceback."""

import pytest

from tests.faults.command_lines import BASES, commands
from tests.faults.groups import run_cases
from tests.faults.sandbox import call, sandbox

N_CASES = 200
pytestmark = pytest.mark.bad_input


def test_every_line_ends_plainly():
    found = run_cases("command lines", N_CASES)
    assert found.total() >= N_CASES and min(found["answered"], found["refused"]) > N_CASES / 20


@pytest.fixture(scope="module")
def somewhere():
    with sandbox() as folder:
        yield folder


def test_what_the_lines_begin_with_is_right(somewhere):
    """Else none of them would get far."""
    lacking = {("train", "mlm"), ("train", "glue"), ("glue",), ("predict",)}  # examples, a tokeniser
    for words, arguments in BASES.items():
        program = ["theory"] if words == ("theory",) else ["sbmt", *words]
        code, _, err = call(program[0], [*program[1:], *arguments])
        assert (code == 2) == (words in lacking), err
    assert set(BASES) <= set(commands())


@pytest.mark.parametrize(
    "line, words",
    [
        ("cost --no-memory --json .", "to write ., got a folder"),
        ("cost --no-memory --json empty", "to write empty, got a folder"),
        ("bench --quick --json .", "to write ., got a folder"),
        (f"bench --quick --threads {10**6}", "at most 1024 threads"),
        (f"evaluate run --seed {1 << 63}", "seed in [0, 2⁶²)"),
        (f"evaluate run --seed {(1 << 63) - 1}", "seed in [0, 2⁶²)"),
        (f"demo --seeds {10**15}", "at most 10,000 seeds"),
        (f"sweep listops --seeds {10**15}", "at most 10,000 seeds"),
        (f"train repeated-tokens --d-model {1 << 31}", "d_model < 2³¹"),
        (f"train repeated-tokens --steps {10**30}", "steps < 2³¹"),
        ("train repeated-tokens --length 100000000", "expected enough memory"),
        (f"sample --n-tokens {(1 << 31) - 1}", "expected enough memory"),
    ],
)
def test_lines_that_ended_in_a_traceback(somewhere, line, words):
    code, _, err = call("sbmt", line.split())
    assert code == 2 and words in err and err.count("\n") == 1


@pytest.mark.parametrize("name", ["[/b].png", "[red].png", "\udcff.png"])
def test_a_file_name_is_printed_as_it_is(somewhere, name):
    code, out, _ = call("sbmt", ["sample", "--n-tokens", "4", "--case", "distant", "--output", name])
    assert code == 0 and f"Figure: {name.encode('utf-8', 'backslashreplace').decode()}" in out


def test_theory_asks_for_no_more_memory_than_there_is(somewhere):
    code, _, err = call("theory", ["--n", "1000000", "--k", "3"])
    assert code == 2 and "expected enough memory" in err and err.count("\n") == 1
