"""Commands that pages tell readers to type are ones that the command line takes, options and values included."""

import re
import shlex

import pytest
from typer.main import get_command

from sbmt.experiments.cli import app
from tests.site.visits import DOCS, SOURCES

pytestmark = pytest.mark.site

SHELL = re.compile(r"^```(?:bash|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
STARTS = ("sbmt ", "-m sbmt.experiments.cli ")
SBMT = get_command(app)


def commands(text):
    """What follows ``sbmt`` in the shell fences of a page."""
    for fence in SHELL.findall(text):
        for line in fence.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            joined = f"{shlex.join(words)} "
            found = [joined.partition(start)[2] for start in STARTS if re.search(rf"(?:^|\s){start}", joined)]
            if found:
                yield shlex.split(found[0])


PAGES = [str(source) for source in SOURCES if any(commands((DOCS / source).read_text("utf-8")))]


def parse(words):
    """Lets the command line read the words, without doing what they say."""
    command, name = SBMT, "sbmt"
    while hasattr(command, "commands"):
        name, *words = words
        command = command.commands[name]
    with command.make_context(name, list(words)):
        pass


@pytest.mark.parametrize("source", PAGES)
def test_commands_on_pages_are_taken(source):
    for words in commands((DOCS / source).read_text(encoding="utf-8")):
        parse(words)


def test_pages_with_commands_are_found():
    assert {"cli.md", "how-to/many-gpus.md", "how-to/own-data.md"} <= set(PAGES)
    page = (DOCS / "how-to" / "many-gpus.md").read_text(encoding="utf-8")
    assert sum(words[:1] == ["train"] for words in commands(page)) >= 6  # by torchrun, srun and with variables, too


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("train listops --devics 4", "devics"),
        ("train lisops", "lisops"),
        ("train listops --devices four", "devices|integer"),
        ("trian listops", "trian"),
        ("evaluate", "run"),
    ],
)
def test_a_slip_is_seen(line, word):
    with pytest.raises(Exception, match=word):
        parse(line.split())
