"""Numbers in README.md and on the site's pages must agree with the result files."""

import re

from results.lookup import NOT_YET, ROOT
from results.write_tables import MARKED, main, renewed

PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("[ah]*/*.md")]
TEXTS = {page.name: page.read_text("utf-8") for page in PAGES}


def test_pages_are_fresh(monkeypatch):
    monkeypatch.setattr("sys.argv", ["write_tables.py", "--check"])
    main()  # ends with the names of stale pages


def test_a_changed_number_is_set_right():
    marked = {name: text for name, text in TEXTS.items() if MARKED.search(text)}
    assert len(marked) >= 10
    for name, text in marked.items():
        assert renewed(MARKED.sub(r"\1a lie\3", text)) == text, name


def test_markers_are_whole_and_stand_where_they_are_not_seen():
    for name, text in TEXTS.items():
        assert text.count("<!-- {{ ") == text.count("<!-- end -->") == len(MARKED.findall(text)), name
        for line in text.split("\n"):
            starts = re.match(r"[> *-]*<!-- \{\{ .* -->", line)
            assert not starts or starts[0] == line, (name, line)  # a comment on a separate line begins a table
            assert not line.startswith("|") or "|" not in "".join(x[1] for x in MARKED.findall(line)), (name, line)
        assert NOT_YET not in text, name
