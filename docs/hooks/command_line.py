"""Writes the tables of options on the page about the command line from the commands themselves.

In ``cli.md``, a line ``<!-- options: train repeated-tokens -->`` is replaced by that command's options, and
``<!-- options: sbmt -->`` by those of ``sbmt`` itself.
"""

import re

MARK = re.compile(r"^<!-- options: (.+?) -->$", re.MULTILINE)
DEFAULT = re.compile(r" [\[(]default: (.+?)[\])]$")


def on_page_markdown(markdown, page, config, files):
    if page.file.src_uri != "cli.md":
        return markdown
    from typer.main import get_command

    from sbmt.experiments.cli import app

    root = get_command(app)
    return MARK.sub(lambda match: _table(_find(root, match[1].removeprefix("sbmt").split())), markdown)


def _find(command, names):
    for name in names:
        command = command.commands[name]
    return command


def _table(command):
    rows = ["| Option | Meaning | Default |", "|---|---|---|"]
    for parameter in command.params:
        if "--help" in parameter.opts:
            continue
        name = parameter.opts[0] if parameter.opts[0].startswith("-") else parameter.opts[0].upper()
        told = DEFAULT.search(parameter.help)  # the help names the default if it depends on another option
        meaning = DEFAULT.sub("", parameter.help).replace("|", "/")
        default = told[1] if told else parameter.default
        shown = "" if default is None or default is False else f"`{default}`"
        rows.append(f"| `{name}` | {meaning} | {shown} |")
    return "\n".join(rows)
