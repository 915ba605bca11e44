"""Makes links to source files work on the site.

A page links to a file of the repository by its relative path, as in ``[edges.py](../sbmt/graph/edges.py)``, which works
wherever the repository is browsed. For the site, ``on_files`` adds a page with the text of each linked file, and
``on_page_markdown`` points the links at these pages. They are in neither the navigation nor the search index.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File, InclusionLevel

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\((?P<up>(?:\.\./)+)(?P<path>(?:sbmt|tests|theory)/[\w/]+\.(?:py|cpp))\)")
PAGE = """---
title: {path}
search:
  exclude: true
---

# `{path}`

[Read the code](../{up}read-the-code.md)

`````{language} linenums="1"
{source}
`````
"""


def on_files(files, *, config):
    linked = set()
    for page in files.documentation_pages():
        if page.src_uri.endswith(".md"):
            linked |= {match["path"] for match in LINK.finditer(page.content_string)}
    for path in sorted(linked):
        if (ROOT / path).is_file():  # if not, the link stays as it is, and a strict build fails on it
            source = (ROOT / path).read_text("utf-8").rstrip("\n")
            text = PAGE.format(path=path, language=path.rpartition(".")[2], up="../" * path.count("/"), source=source)
            uri = f"source/{path.removesuffix('.py')}.md"
            files.append(File.generated(config, uri, content=text, inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown, *, page, config, files):
    folder = posixpath.dirname(page.file.src_uri)

    def rewritten(match):
        uri = f"source/{match['path'].removesuffix('.py')}.md"
        return f"]({posixpath.relpath(uri, folder or '.')})" if files.get_file_from_path(uri) else match[0]

    return LINK.sub(rewritten, markdown)
