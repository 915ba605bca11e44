"""What is written on the pages is true of the program: code runs, commands and options exist."""

import os
import re
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import jaxtyping
import pytest

from sbmt.attention.dispatch import BACKENDS
from sbmt.layers.registry import ATTENTIONS
from sbmt.samplers import SAMPLERS
from tests.site.visits import DOCS, SOURCES

pytestmark = pytest.mark.site

FENCE = re.compile(r"^```python.*?\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("source", [s for s in map(str, SOURCES) if FENCE.search((DOCS / s).read_text("utf-8"))])
def test_code_on_pages_runs(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # for what pages write
    jaxtyping.config.update("jaxtyping_disable", True)  # as readers run it; a fixture of all tests sets this back
    namespace: dict[str, object] = {}
    with ExitStack() as stack:
        for table in (os.environ, BACKENDS, SAMPLERS, ATTENTIONS):  # one page leaves nothing for the next
            stack.enter_context(patch.dict(table))
        for code in FENCE.findall((DOCS / source).read_text(encoding="utf-8")):
            exec(compile(code, source, "exec"), namespace)


def test_command_line_page_is_complete() -> None:
    from typer.main import get_command

    from sbmt.experiments.cli import app

    text = (DOCS / "cli.md").read_text(encoding="utf-8")

    def leaves(command, name: str) -> dict[str, object]:
        children = getattr(command, "commands", None)
        if not children:
            return {name: command}
        return {k: v for child, c in children.items() for k, v in leaves(c, f"{name} {child}").items()}

    commands = leaves(get_command(app), "sbmt")
    assert {name for name in commands if f"## `{name}`" not in text} == set()
    for line in re.findall(r"^sbmt (?!\d).*$", text, re.MULTILINE):
        command = next(command for name, command in commands.items() if f"{line} ".startswith(f"{name} "))
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        assert set(re.findall(r"--[\w-]+", line)) <= known, line
