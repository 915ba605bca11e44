"""Keeps the site self-contained and its links correct.

1. ``on_page_content``: removes the MathJax tag and the Mermaid import of notebook pages, both loaded from other hosts
   (the site renders maths with its own copy of KaTeX). Checks links inside notebooks and rewrites them to the built
   pages, as MkDocs itself does for Markdown pages.
2. ``on_post_page``: warns of every asset that a page would load from another host, so that ``--strict`` fails.
"""

import logging
import posixpath
import re
from html import unescape
from urllib.parse import unquote, urlsplit

log = logging.getLogger("mkdocs.hooks.site")  # a child of "mkdocs": its warnings count under --strict

REMOTE = re.compile(r"(?:https?:)?//", re.IGNORECASE)
MATHJAX = re.compile(r"<!-- Load mathjax -->.*?<!-- End of mathjax configuration -->", re.DOTALL)
SCRIPT = re.compile(r"<script\b[^>]*>.*?</script>", re.DOTALL | re.IGNORECASE)
LINK = re.compile(r'(<(?:a|img)\b[^>]*?\b(?:href|src)=")([^"]*)(")', re.IGNORECASE)
TARGET = re.compile(r'\b(?:id|name)="([^"]+)"')
# What a browser loads by itself, so plain <a href> is not included.
ASSET = re.compile(
    r"<(?:script|img|iframe|audio|video|source|embed|track|input)\b[^>]*?\ssrc\s*=\s*[\"']?([^\"'\s>]+)"
    r"|<link\b(?![^>]*\brel=[\"']?(?:canonical|next|prev|alternate|author|license))[^>]*?\shref\s*=\s*[\"']?([^\"'\s>]+)"
    r"|\burl\(\s*[\"']?([^\"')\s]+)"
    r"|@import\s+[\"']([^\"']+)"
    r"|\bimport\s*\(?\s*[\"']((?:https?:)?//[^\"']+)"
    r"|\bfrom\s+[\"'](https?://[^\"']+)"
    r"|\bsrcset\s*=\s*[\"']([^\"'\s]+)",
    re.IGNORECASE,
)


def on_page_content(html, page, config, files):
    if not page.file.src_uri.endswith(".ipynb"):
        return html
    html = _without_remote_scripts(html)
    return _with_checked_links(html, page, files)


def on_post_page(output, page, config):
    code_removed = re.sub(r"<(code|pre)\b.*?</\1>", "", output, flags=re.DOTALL)
    for match in ASSET.finditer(code_removed):
        address = next(group for group in match.groups() if group)
        if REMOTE.match(address):
            log.warning("%s: would load '%s' from elsewhere; vendor it under docs/assets", page.file.src_uri, address)
    return output


def _without_remote_scripts(html):
    html = MATHJAX.sub("", html)

    def keep(match):
        is_injected = re.search(r"mermaid|mathjax", match[0], re.IGNORECASE)
        return "" if is_injected else match[0]

    return SCRIPT.sub(keep, html)


def _with_checked_links(html, page, files):
    own_targets = {unescape(name).lower(): name for name in TARGET.findall(html)}

    def checked(match):
        before, link, after = match.groups()
        address = urlsplit(unescape(link))
        if address.scheme or address.netloc or link.startswith("data:"):
            return match[0]
        if not address.path:
            # JupyterLab keeps the capitals of a heading in its id, while the site uses lower case.
            target = own_targets.get(unquote(address.fragment).lower())
            if target is None:
                log.warning("%s: link to '%s', but no heading has that id", page.file.src_uri, link)
                return match[0]
            return f"{before}#{target}{after}"
        folder = posixpath.dirname(page.file.src_uri)
        # JupyterLab resolves a link from notebooks/, the site from docs/notebooks/; both forms are accepted.
        path = unquote(address.path)
        candidates = [path, path.replace("../docs/", "../", 1)]
        uris = [posixpath.normpath(posixpath.join(folder, candidate)) for candidate in candidates]
        file = next((found for found in map(files.get_file_from_path, uris) if found), None)
        if file is None:
            log.warning("%s: link to '%s', which is not in the docs", page.file.src_uri, path)
            return match[0]
        fragment = f"#{address.fragment}" if address.fragment else ""
        return before + file.url_relative_to(page.file) + fragment + after

    return LINK.sub(checked, html)
