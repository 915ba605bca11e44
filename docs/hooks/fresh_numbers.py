"""Fails the strict build if a page does not match the result files, or if a link into a notebook is broken.

1. ``on_pre_build``: a warning for every page that ``python results/write_tables.py`` would change.
2. ``on_page_content``: gives MkDocs the headings of notebook pages, so that it checks links to them.
"""

import logging
import re
from html import unescape

log = logging.getLogger("mkdocs.hooks.fresh_numbers")

ID = re.compile(r'\bid="([^"]+)"')


def on_pre_build(config):
    from results.write_tables import stale_pages

    for page in stale_pages():
        log.warning("%s is stale: run python results/write_tables.py", page.name)


def on_page_content(html, page, config, files):
    if page.file.src_uri.endswith(".ipynb"):
        page.present_anchor_ids = {unescape(name) for name in ID.findall(html)}
    return html
