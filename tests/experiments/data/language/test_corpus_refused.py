"""Text that makes no corpus, and files that are damaged."""

import gzip

import pytest

from sbmt import SbmtError
from sbmt.experiments.data.language.corpus import corpus_source
from tests.experiments.data.language.test_corpus import LINES, TEXT, TOKENIZER, streams, write


@pytest.mark.bad_input
@pytest.mark.parametrize("shard_bytes", [8, 10**6])
@pytest.mark.parametrize("name", ["some_txt", "some_gz"])
def test_bytes_that_are_no_utf8_are_told_by_line(tmp_path, shard_bytes, name):
    write(tmp_path, **{name: "".join(LINES[:20]).encode() + b"caf\xe9 \n" + TEXT.encode()}, dev_txt="a", test_txt="b")
    source = corpus_source(tmp_path, tokenizer=TOKENIZER, shard_bytes=shard_bytes)
    with pytest.raises(SbmtError, match=r"UTF-8 in .*some.txt.*, line 21, got b'\\xe9"):
        streams(source)
    with pytest.raises(SbmtError, match=r"some.txt.*, line 21"):
        corpus_source(tmp_path, shard_bytes=shard_bytes)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "put text in UTF-8 there"),
        ({"some_txt": ""}, "text of 3 lines or more"),
        ({"some_txt": "one\ntwo\n"}, "text of 3 lines or more for train and dev and test in some.txt, got 2"),
        ({"dev_txt": "a\n", "test_txt": "b\n"}, "text of 1 lines or more"),
        ({"some_txt": "a\n", "some_gz": "a\n"}, "some.txt once"),
    ],
)
def test_too_little_text_is_refused(tmp_path, files, words):
    with pytest.raises(SbmtError, match=words):
        corpus_source(write(tmp_path, **files), tokenizer=TOKENIZER)


@pytest.mark.bad_input
def test_other_files_are_refused(tmp_path):
    (tmp_path / "some.tsv").write_text(TEXT)
    with pytest.raises(SbmtError, match=r"named \*.txt or \*.txt.gz"):
        corpus_source(tmp_path / "some.tsv", tokenizer=TOKENIZER)
    with pytest.raises(SbmtError, match="no such file or folder"):
        corpus_source(tmp_path / "none", tokenizer=TOKENIZER)
    (tmp_path / "some.txt.gz").write_bytes(gzip.compress(TEXT.encode())[:-20])
    with pytest.raises(SbmtError, match="damage"):
        corpus_source(tmp_path / "some.txt.gz", tokenizer=TOKENIZER)
    with pytest.raises(SbmtError, match="shard_bytes ≥ 1"):
        corpus_source(tmp_path, tokenizer=TOKENIZER, shard_bytes=0)
