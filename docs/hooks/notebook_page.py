"""Adds a line under the title of each notebook page.

The line offers the notebook as a file, the command that opens it, and the time that reading takes (see ``course.py``).
If ``mkdocs.yml`` sets ``repo_url``, there is a link to the source as well, and one to Colab where the repository is on
GitHub. All are plain links; no badge is loaded.

``on_post_build`` copies the notebooks next to their pages for download.
"""

import posixpath
import re
import shutil
import sys
from html import escape
from pathlib import Path
from urllib.parse import urlsplit

sys.path.append(str(Path(__file__).parent))
import course

HEADING = re.compile(r"<h1\b.*?</h1>", re.DOTALL)
RULE = "../learning-path.html#how-long-it-takes"
BRANCH = "main"
FACTS = ' data-md-component="source"'  # the theme asks GitHub how many stars a repository has


def on_page_content(html, page, config, files):
    notebook = _notebook_of(page)
    if notebook is None:
        return html
    line = _line(notebook, config["repo_url"])
    return HEADING.sub(lambda heading: heading[0] + line, html, count=1)


def on_post_page(output, page, config):
    return output.replace(FACTS, "")


def on_post_build(config):
    for notebook in course.notebooks():
        shutil.copyfile(notebook.path, Path(config["site_dir"]) / notebook.uri)


def _notebook_of(page):
    return next((notebook for notebook in course.notebooks() if notebook.uri == page.file.src_uri), None)


def _line(notebook, repository):
    name = escape(notebook.path.name)
    parts = [
        f'<a href="{name}" download>Download the notebook</a>',
        "or open it with <code>make lab</code>",
        f'<a href="{RULE}">{course.spelled(notebook.minutes)}</a> to read',
    ]
    parts += _elsewhere(notebook, repository)
    return f'<p class="nb-line" data-search-exclude>{"".join(f"<span>{part}</span>" for part in parts)}</p>'


def _elsewhere(notebook, repository):
    if not repository:
        return []
    host, path = urlsplit(repository)[1:3]
    place = posixpath.join("blob", BRANCH, notebook.uri)
    links = [f'<a href="{escape(posixpath.join(repository, place))}">Source</a>']
    if host == "github.com":
        colab = posixpath.join("https://colab.research.google.com/github", path.strip("/"), place)
        links.append(f'<a href="{escape(colab)}">Open in Colab</a>')
    return links
