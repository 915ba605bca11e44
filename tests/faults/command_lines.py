"""Random command lines, in a folder where work that would take long ends as soon as it begins."""

import contextlib
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import matplotlib.figure
import pytest
import torch
from hypothesis import strategies as st
from lightning.pytorch import Trainer
from typer.main import get_command

import theory.__main__ as theory_command
from sbmt.command import run_command
from sbmt.experiments.benchmarks import attention, backends, memory
from sbmt.experiments.cli import app, main
from sbmt.experiments.data.prepared import prepare
from sbmt.experiments.files import write_json
from sbmt.experiments.studies import study
from sbmt.experiments.training import tasks
from sbmt.layers.registry import ATTENTIONS
from tests.experiments.data.toy import KINDS, toy_source

TINY = "--length 4 --batch-size 2 --steps 2 --d-model 4 --d-hidden 4 --n-heads 2 --n-layers 1".split()
PREPARED = [*TINY, "--warmup-steps", "0", "--eval-every", "1"]
BASES = {
    "train repeated-tokens": [*TINY, "--test-sequences", "2"],
    "train recall": ["--n-pairs", "2", "--n-queries", "2", "--n-distractors", "3", *TINY[2:], "--test-sequences", "2"],
    "train twins": [*TINY, "--data", "image", "--test-sequences", "2"],
    "train glue": ["--task", "sst2", *TINY],
    "demo": ["--steps", "2", "--workers", "1"],
    "study": ["figure4-64"],
    "glue": ["--reduced"],
    "evaluate": ["run", "--sequences", "2"],
    "predict": ["begun", "file.txt"],
    "inspect": ["run"],
    "sample": ["--n-tokens", "5", "--case", "collapsed"],
    "bench": ["--quick", "--threads", "1"],
    "cost": ["--attention", "sbm", "--length", "32", "--no-memory"],
    "data prepare": ["listops", "--reduced"],
    "data list": [],
    "theory": ["--n", "9", "--k", "3"],
}
"""Arguments that are right, so that most lines get further than their first word; others take those of a training."""
# fmt: off
NUMBERS = ["1", "2", "3", "0", "0.5", "-1", "7", "nan", "inf", "-inf", "1e400", "1e-400", "9" * 30, "-" + "9" * 30,
           "2147483648", "9223372036854775808", "0x10", "1_0", "1e3", "-0", "٣", "1,5", "true"]
WORDS = ["", " ", "✓", "\udcff", "a" * 5000, '{"a": 1}', "[1, 2]", "%s%n", "[red]x", "[/red]", "\n", "-", "--", "-h",
         "None", *ATTENTIONS, "exact", "fastrg", "weight", "poisson", "crossed", "faithful", "expected", "paper", "mlm",
         "text", "sst2", "corpus", "collapsed", "memory", "first", "bf16-mixed", "per_block", "321", "2,5,8"]
PATHS = ["missing", "file.txt", "empty", "run", "damaged", "begun", "lm", "cache", "cache/listops", "file.txt/inside",
         "..", ".", "/proc/nowhere/x.json", "deep/er/new.json", "x.png", "x.xyz", "[/b]x.png", "\udcff.png",
         "✓/x.json", "a" * 300 + ".png", "a" * 300, "empty/", "run/config.json"]
# fmt: on
ANYTHING = st.sampled_from([*NUMBERS, *WORDS, *PATHS]) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8
)


class StartedError(Exception):
    """The arguments were taken, and the work would begin."""


def _start(*_, **__):
    raise StartedError


@cache
def commands():
    """Every command by its words, with the options that it has."""
    found = {"theory": get_command(theory_command.app)}

    def walk(command, words):
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, [*words, name])
        if not hasattr(command, "commands"):
            found[" ".join(words)] = command

    walk(get_command(app), [])
    return {words: [p for p in command.params if p.param_type_name == "option"] for words, command in found.items()}


def kind_of(option):
    """What an option takes, in Typer's words, which depend on its version."""
    return str(vars(option).get("type_descriptor", vars(option).get("type"))).lower()


def is_number(option):
    return "int" in kind_of(option) or "float" in kind_of(option)


def pick_line(case):
    """The words of a command with arguments that are right for it, and up to four others that may be wrong."""
    words = case.pick("command", tuple(commands()))
    line = words.split() + (BASES.get(words, PREPARED) if case.pick("has base", (True,) * 9 + (False,)) else [])
    for number in range(case.pick("extra", (1, 2, 0, 4))):
        if not commands()[words]:
            line.append(case.pick(f"word {number}", ANYTHING))
            continue
        option = case.pick(f"option {number}", commands()[words])
        likely = NUMBERS if is_number(option) else PATHS if "path" in kind_of(option) else WORDS
        kind = case.pick(f"kind {number}", ("likely",) * 12 + ("any", "word", "name", "joined"))
        value = case.pick(f"value {number}", ANYTHING if kind == "any" else likely)
        name = case.pick(f"name {number}", (*option.opts, *option.secondary_opts))
        if kind == "word":
            line.append(value)
        elif kind == "name" or getattr(option, "is_flag", False):
            line.append(name)
        else:
            line += [f"{name}={value}"] if kind == "joined" else [name, value]
    return line


def check_command_line(case):
    """Exit code 0 to 2, words instead of a traceback; a mistake is reported on the error stream."""
    line = pick_line(case)
    program = "theory" if line[0] == "theory" else "sbmt"
    code, out, err = call(program, line[program == "theory" :])
    assert code in (0, 1, 2, 130, None), (code, out, err)
    assert "Traceback" not in out + err, err
    if code != 2:
        return "answered"
    by_typer = "Usage: " in out + err or "Error" in err.split("\n")[0]
    assert by_typer or err.startswith(f"{program}: expected "), (out, err)
    return "refused"


def call(program, arguments):
    """Runs a command in a copy of the folder; returns its exit code, None where the work would begin, and its words.

    Streams are as strict as a terminal's: what cannot be encoded is an error on the one and escaped on the other.
    """
    outer = Path.cwd().parent
    os.chdir(outer)
    shutil.rmtree("inner", ignore_errors=True)  # and so "..", which nobody may write to
    shutil.copytree("template", "inner")
    os.chdir("inner")
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", errors=how) for how in ("strict", "backslashreplace"))
    threads, code = torch.get_num_threads(), None
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "argv", [program, *arguments])
        try:
            main() if program == "sbmt" else run_command(theory_command.app, "theory")
        except SystemExit as leaving:
            code = leaving.code or 0
        except StartedError:
            pass
        finally:
            torch.set_num_threads(threads)
    for stream in (out, err):
        stream.flush()
    return code, out.buffer.getvalue().decode(), err.buffer.getvalue().decode()


@contextlib.contextmanager
def sandbox() -> Iterator[None]:
    """A folder with files and runs to name, whose copy :func:`call` works in."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as outer, pytest.MonkeyPatch.context() as patch:
        template = Path(outer) / "template"
        template.mkdir()
        for name in ("data", "cache"):
            patch.setenv(f"SBMT_{name.upper()}", name)
        patch.setenv("COLUMNS", "100")
        os.chdir(template)
        try:
            _furnish(template)
            patch.setattr(Trainer, "fit", _start)
            patch.setattr(study, "_in_processes", _start)
            patch.setattr(import_module("sbmt.experiments.training.evaluate"), "call_model", _start)
            for suite in (attention, backends, memory):
                patch.setattr(suite, "run", _start)
            patch.setattr("sbmt.experiments.costs.build_model", _start)
            patch.setattr("sbmt.experiments.cli.data.prepare", _start)
            patch.setattr(theory_command, "run", _start)
            patch.setattr(matplotlib.figure.Figure, "savefig", lambda self, file, **_: file.write(b"a figure"))
            yield
        finally:
            os.chdir(before)


def _furnish(folder):
    """A run, damaged ones, prepared examples, text, a file, an empty folder."""
    train = ["train", "repeated-tokens", *BASES["train repeated-tokens"], "--output", "run"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        app(train, standalone_mode=False)
    for task in KINDS:
        prepare(toy_source(task, name=task), folder / "cache")
    for name in ("empty", "damaged", "lm"):
        (folder / name).mkdir()
    (folder / "file.txt").write_text("some text\nof two lines\n" * 20, "utf-8")
    (folder / "lm" / "text.txt").write_text("a line\n" * 200, "utf-8")
    (folder / "damaged" / "config.json").write_text('{"length": "x"', "utf-8")
    config = tasks.fine_tuning("sst2", "", tasks.MlmConfig(), tokenizer="tokenizer.json").to_dict()
    write_json(folder / "begun" / "config.json", config)
