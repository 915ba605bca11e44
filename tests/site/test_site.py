"""Tests that pages agree with the program: their code runs, and their commands and options exist."""

import os
import re
import shlex
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from unittest.mock import patch

import jaxtyping
import pytest
from typer.main import get_command

from sbmt.attention.dispatch import BACKENDS
from sbmt.experiments.cli import app
from sbmt.layers.registry import ATTENTIONS
from sbmt.samplers import SAMPLERS
from tests.site.visits import DOCS, SOURCES

pytestmark = pytest.mark.site

TEXTS = {str(source): (DOCS / source).read_text("utf-8") for source in SOURCES}
FENCE = re.compile(r"^```python.*?\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^```(?:bash|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
STARTS = ("sbmt ", "-m sbmt ")
SBMT = get_command(app)


@pytest.mark.parametrize("source", [source for source, text in TEXTS.items() if FENCE.search(text)])
def test_code_on_pages_runs(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a folder for files that pages write
    jaxtyping.config.update("jaxtyping_disable", True)  # as readers run it; a fixture of all tests restores this
    namespace: dict[str, object] = {}
    with ExitStack() as stack:
        for table in (os.environ, BACKENDS, SAMPLERS, ATTENTIONS):  # pages must not affect each other
            stack.enter_context(patch.dict(table))
        for code in FENCE.findall(TEXTS[source]):
            exec(compile(code, source, "exec"), namespace)


def commands(text: str):
    """Returns the arguments of ``sbmt`` in the shell blocks of a page."""
    for fence in SHELL.findall(text):
        for line in fence.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            joined = f"{shlex.join(words)} "
            found = [joined.partition(start)[2] for start in STARTS if re.search(rf"(?:^|\s){start}", joined)]
            if found:
                yield shlex.split(found[0])


def parse(words: list[str]) -> None:
    """Parses the words as a command line without running the command."""
    command, name = SBMT, "sbmt"
    while hasattr(command, "commands"):
        name, *words = words
        command = command.commands[name]
    with command.make_context(name, list(words)):
        pass


def test_commands_on_pages_are_taken() -> None:
    found = {source: list(commands(text)) for source, text in TEXTS.items()}
    for words in chain(*found.values()):
        parse(words)
    assert found["cli.md"] and found["how-to/own-data.md"]
    assert len([words for words in found["how-to/many-gpus.md"] if words[:1] == ["train"]]) >= 4  # also by torchrun


def test_every_command_has_a_section() -> None:
    def check(command, name: str) -> None:
        children = getattr(command, "commands", {})
        assert children or f"## `{name}`" in TEXTS["cli.md"], name
        for word, child in children.items():
            check(child, f"{name} {word}")

    check(SBMT, "sbmt")
