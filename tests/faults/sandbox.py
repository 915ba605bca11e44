"""A folder for random command lines, in which whatever would take long ends where the work begins."""

import contextlib
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import matplotlib.figure
import pytest
import torch
from lightning.pytorch import Trainer

import theory.__main__ as theory_command
from sbmt.command import run_command
from sbmt.experiments.benchmarks import attention, backends, memory, sampler
from sbmt.experiments.cli import app, main
from sbmt.experiments.costs import report
from sbmt.experiments.data.prepared import prepare
from sbmt.experiments.files import write_json
from sbmt.experiments.plots import placements
from sbmt.experiments.studies import study
from sbmt.experiments.training import language
from sbmt.models.encoder import Encoder
from tests.experiments.data.toy import toy_source

MOST = 3e6  # numbers of a model, tokens of a picture squared: what takes no time
NO_MEMORY = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate"
)
TINY = "--length 4 --batch-size 2 --steps 2 --d-model 4 --d-hidden 4 --n-heads 2 --n-layers 1".split()


class StartedError(Exception):
    """The arguments were taken, and the work would begin."""


def _start(*_, **__):
    raise StartedError


def _if_small(call, size_of):
    """The call, unless it asks for more memory than a test should take: then what torch says where there is none."""

    def guarded(*arguments, **named):
        try:
            is_large = size_of(*arguments, **named) > MOST
        except (TypeError, ValueError, OverflowError):
            is_large = False  # of the wrong kind: the call says so itself
        if is_large:
            raise RuntimeError(NO_MEMORY)
        return call(*arguments, **named)

    return guarded


def _encoder_size(_, vocab_size, max_length, *, d_model, d_hidden, n_heads, n_layers, **arguments):
    widths = [arguments.get(name, 1) for name in ("n_clusters", "n_projected", "n_features", "n_positions")]
    per_layer = d_model * (4 * d_model + 2 * d_hidden) + d_model * max(widths) * 4 + widths[1] * widths[3] * n_heads
    sizes = vocab_size, d_model, d_hidden, n_heads, n_layers, max_length or 1
    if not all(isinstance(n, int) and 1 <= n < 1 << 31 for n in sizes):
        return 0  # refused
    return d_model * (vocab_size + (max_length or 0)) + n_layers * per_layer


@contextlib.contextmanager
def sandbox() -> Iterator[Path]:
    """A temporary folder; :func:`call` begins in a fresh copy of its ``template``, with files and runs to name."""
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
            _prevent(patch)
            yield Path(outer)
        finally:
            os.chdir(before)


def _fresh_folder() -> None:
    """What one command leaves behind is not there for the next."""
    outer = Path.cwd().parent
    os.chdir(outer)
    for found in outer.iterdir():
        if found.name != "template":
            shutil.rmtree(found) if found.is_dir() else found.unlink()
    shutil.copytree(outer / "template", outer / "inner")
    os.chdir(outer / "inner")


def _furnish(folder):
    """A run, damaged ones, prepared examples, text, a file, an empty folder."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        app(["train", "repeated-tokens", *TINY, "--test-sequences", "2", "--output", "run"], standalone_mode=False)
    prepare(toy_source(name="listops"), folder / "cache")
    (folder / "file.txt").write_text("some text\nof two lines\n" * 20, "utf-8")
    (folder / "empty").mkdir()
    (folder / "damaged").mkdir()
    (folder / "damaged" / "config.json").write_text('{"length": "x"', "utf-8")
    config = language.fine_tuning("sst2", "", language.MlmConfig(), tokenizer="tokenizer.json").to_dict()
    write_json(folder / "begun" / "config.json", config)
    (folder / "lm").mkdir()
    (folder / "lm" / "text.txt").write_text("a line\n" * 200, "utf-8")


def _prevent(patch):
    patch.setattr(Trainer, "fit", _start)
    patch.setattr(study, "_in_processes", _start)
    patch.setattr(import_module("sbmt.experiments.training.evaluate"), "call_model", _start)
    for suite in (attention, sampler, backends, memory):
        patch.setattr(suite, "run", _start)
    patch.setattr(report, "build_case", _start)
    patch.setattr("sbmt.experiments.cli.data.prepare", _start)
    patch.setattr(matplotlib.figure.Figure, "savefig", lambda self, file, **_: file.write(b"a figure"))
    patch.setattr(Encoder, "__init__", _if_small(Encoder.__init__, _encoder_size))
    patch.setattr(placements, "place", _if_small(placements.place, lambda name, n=48, seed=0: 100 * n * n))
    patch.setattr(theory_command, "run", _start)
    patch.setattr(theory_command, "three_patterns", _if_small(theory_command.three_patterns, lambda n, *_: 700 * n * n))


def call(program, arguments):
    """Runs a command in this process; returns its exit code, None where the work would have begun, and all it said.

    Streams are as strict as a terminal's: what cannot be encoded is an error on the one and escaped on the other.
    """
    _fresh_folder()
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", errors=how) for how in ("strict", "backslashreplace"))
    threads = torch.get_num_threads()
    code = None
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
