"""Command lines that nobody should write: every one ends with a plain word and a known exit code."""

from dataclasses import dataclass
from functools import cache

from hypothesis import strategies as st
from typer.main import get_command

import theory.__main__ as theory_command
from sbmt.experiments.cli import app
from sbmt.layers.registry import ATTENTIONS
from tests.faults.sandbox import TINY, call

# fmt: off
NUMBERS = [
    "0", "1", "-1", "2", "3", "7", "1.5", "0.5", "nan", "inf", "-inf", "1e400", "1e-400", "9" * 30, "-" + "9" * 30,
    "2147483648", "2147483647", "9223372036854775808", "0x10", "1_000", "1e3", "-0", "٣", "1,5", "true",
]
WORDS = [
    "", " ", "✓", "\udcff", "a" * 5000, '{"a": 1}', "[1, 2]", "%s%n", "[red]x", "[/red]", "\n", "-", "--", "-h",
    "None", "sbm", "full", "random_mask", "linformer", "sbm_static", "exact", "fastrg", "weight", "poisson",
    "softmax", "faithful", "expected", "demo", "paper", "listops", "text", "retrieval", "mlm", "sst2", "corpus",
    "collapsed", "sampler", "memory", "backends", "attention", "first", "concatenation", "bf16-mixed", "16-mixed",
    "last", "per_block", "321", "1,2", "full-fused", "random-mask", "figure4", "sbm-loops", "random-equal",
]
PATHS = [
    "missing", "file.txt", "empty", "run", "damaged", "begun", "lm", "cache", "cache/listops", "file.txt/inside",
    "..", ".", "/proc/nowhere/x.json", "deep/er/new.json", "x.png", "x.xyz", "x.pdf", "[/b]x.png", "[/b]",
    "\udcff.png", "✓/x.json", "a" * 300 + ".png", "a" * 300, "", " ", "empty/", "run/config.json",
]
# fmt: on
PLAUSIBLE = ["1", "2", "3", "0", "0.5", "0.25", "4"]
RIGHT = {
    "attention": list(ATTENTIONS),
    "sampler": ["exact", "fastrg", "bernoulli"],
    "link": ["poisson", "bilinear"],
    "gate_rule": ["weight", "score"],
    "membership": ["softmax", "sigmoid"],
    "preset": ["faithful", "recommended"],
    "density_kind": ["expected", "sampled"],
    "size": ["demo", "paper"],
    "case": ["collapsed", "all"],
    "suite": ["sampler", "memory", "attention", "backends"],
    "precision": ["bf16-mixed", "32-true", "16-mixed"],
    "relays": ["last", "per_block", "2,5,8"],
    "order": ["321", "123"],
    "trial": ["full", "sbm", "random-equal"],
    "data": ["listops", ""],
}
"""Words that are right, by the option they are for."""
ANYTHING = st.sampled_from([*NUMBERS, *WORDS, *PATHS]) | st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), max_size=8
)
BASES = {
    ("train", "repeated-tokens"): [*TINY, "--test-sequences", "2"],
    ("train", "listops"): [*TINY, "--warmup-steps", "0", "--eval-every", "1"],
    ("train", "mlm"): [*TINY, "--warmup-steps", "0", "--eval-every", "1"],
    ("train", "glue"): ["--task", "sst2", *TINY],
    ("sweep",): ["listops", *TINY, "--warmup-steps", "0", "--eval-every", "1"],
    ("demo",): ["--steps", "2"],
    ("study",): ["figure4-64"],
    ("glue",): ["--reduced"],
    ("evaluate",): ["run", "--sequences", "2"],
    ("predict",): ["begun", "file.txt"],
    ("inspect",): ["run"],
    ("sample",): ["--n-tokens", "5", "--case", "collapsed"],
    ("bench",): ["--quick", "--threads", "1"],
    ("cost",): ["--attention", "sbm", "--length", "32", "--no-memory"],
    ("data", "prepare"): ["listops", "--reduced"],
    ("data", "list"): [],
    ("theory",): ["--n", "9", "--k", "3"],
}
"""Arguments that are right, so that most lines get further than their first word."""
EXIT_CODES = {0, 1, 2, 130, None}


@dataclass(frozen=True)
class CommandCase:
    """Words of a command line, the program first."""

    words: tuple[str, ...]


@cache
def commands():
    """Every command by its words, with the options that it has."""
    found = {("theory",): get_command(theory_command.app)}

    def walk(command, words):
        if hasattr(command, "commands"):
            for name, inner in command.commands.items():
                walk(inner, (*words, name))
        else:
            found[words] = command

    walk(get_command(app), ())
    return found


@st.composite
def command_cases(draw):
    """A command, mostly with arguments that are right for it, and one to four that may be wrong."""
    if draw(st.integers(0, 29)) == 29:
        return CommandCase(("sbmt", *draw(st.lists(ANYTHING, max_size=3))))
    words = draw(st.sampled_from(sorted(commands())))
    program = ("theory",) if words == ("theory",) else ("sbmt", *words)
    base = BASES.get(words, BASES["train", "listops"]) if draw(st.integers(0, 9)) < 9 else []
    extra = [_extra(draw, commands()[words]) for _ in range(draw(st.sampled_from([1, 2, 1, 4])))]
    return CommandCase((*program, *base, *(word for part in extra for word in part)))


def _extra(draw, command):
    """An option and its value, mostly one that is right or might be; now and then something else."""
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    chance = draw(st.integers(0, 39))
    if chance == 39 or not options:
        return ["--frobnicate"] if chance == 39 else [draw(ANYTHING)]
    if chance == 38:
        return [draw(ANYTHING)]
    option = draw(st.sampled_from(options))
    name = draw(st.sampled_from([*option.opts, *option.secondary_opts]))
    if getattr(option, "is_flag", False):
        return [name]
    kind = str(vars(option).get("type_descriptor", vars(option).get("type"))).lower()  # as Typer's version has it
    is_number = "int" in kind or "float" in kind
    likely = NUMBERS if is_number else PATHS if "path" in kind else WORDS
    right = PLAUSIBLE if is_number else RIGHT.get(option.name, likely)
    if chance == 37:
        return [name]
    value = draw(ANYTHING if chance >= 34 else st.sampled_from(right if chance < 18 else likely))
    return [f"{name}={value}"] if chance % 9 == 0 else [name, value]


def check_command_line(case):
    """Exit code 0 to 2, words instead of a traceback; a mistake is told on the error stream."""
    program, *arguments = case.words
    code, out, err = call(program, arguments)
    assert code in EXIT_CODES, (code, out, err)
    assert "Traceback" not in out + err, err
    if code != 2:
        return "answered"
    by_typer = "Usage: " in out + err or "Error" in err.split("\n")[0]
    assert by_typer or err.startswith(f"{program}: expected "), (out, err)
    return "refused"
