"""A corpus: its splits, and streams that give back the text however it is divided."""

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbmt import SbmtError
from sbmt.experiments.data.language.corpus import EVERY, corpus_source
from sbmt.experiments.data.language.tokenizer import Tokenizer, lines_of, train_tokenizer
from sbmt.experiments.data.source import SPLITS

RNG = np.random.default_rng(0)
WORDS = ["the", "cat", "sat", "größer", "—", "<s>", "<mask>", " ", "\t", "\r", "12", "it’s"]
LINES = [" ".join(RNG.choice(WORDS, RNG.integers(0, 12))) + "\n" for _ in range(400)]
TEXT = "".join(LINES)
TOKENIZER = train_tokenizer([TEXT], 290)


def write(folder, files):
    """Writes texts by name; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        content = text.encode() if isinstance(text, str) else text
        (folder / name).write_bytes(gzip.compress(content, mtime=0) if name.endswith(".gz") else content)
    return folder


def streams(source):
    """The ids of every split, shard after shard."""
    ids = {split: [np.empty(0, np.uint16)] for split in SPLITS}
    for shard in source.shards:
        examples = shard.make()
        assert examples.lengths.tolist() == [[len(examples.symbols)]] and examples.labels.tolist() == [0]
        ids[shard.split].append(examples.symbols)
    return {split: np.concatenate(parts) for split, parts in ids.items()}


def texts(source):
    return {split: TOKENIZER.decode(ids) for split, ids in streams(source).items()}


NAMED = {
    "a_train.txt": TEXT,
    "b.train.txt.gz": TEXT[:999],
    "my-dev.txt": LINES[7] * 3,
    "wiki.Test.txt.gz": "".join(LINES[:9]),
}


def test_names_say_the_split(tmp_path):
    source = corpus_source(write(tmp_path, NAMED), tokenizer=TOKENIZER)
    assert texts(source) == {"train": TEXT + TEXT[:999], "dev": LINES[7] * 3, "test": "".join(LINES[:9])}
    assert [shard.name for shard in source.shards] == ["train-00000", "train-00001", "dev-00000", "test-00000"]


@pytest.mark.parametrize(
    ("name", "split"),
    [("x.validation", "dev"), ("VAL2", "dev"), ("dev_test", "dev"), ("test-1", "test"), ("latest", "train")],
)
def test_whole_words_of_a_name_say_the_split(tmp_path, name, split):
    files = {"train.txt": "train\n", "test.txt": "test\n", "dev.txt": "dev\n", f"{name}.txt.gz": "here\n"}
    assert "here\n" in texts(corpus_source(write(tmp_path, files), tokenizer=TOKENIZER))[split]


@pytest.mark.parametrize(
    ("kind", "named"), [("txt", ()), ("txt.gz", ("dev",)), ("txt.gz", ("test",)), ("txt", ("dev", "test"))]
)
def test_what_no_file_is_named_for_gets_every_20th_part(tmp_path, kind, named):
    write(tmp_path, {f"some.{kind}": TEXT} | {f"{split}.txt": f"only {split}\n" for split in named})
    source = corpus_source(tmp_path, tokenizer=TOKENIZER, shard_bytes=10**9 if len(named) < 2 else 500)
    found = texts(source)
    for split in ("dev", "test"):
        if split in named:
            assert found.pop(split) == f"only {split}\n"
        else:
            assert 0.5 < len(found[split]) * EVERY / len(TEXT) < 2
    assert sorted(line for text in found.values() for line in lines_of(text)) == sorted(LINES)


@given(st.integers(1, 60), st.integers(1, 10**4))
def test_parts_are_lines_and_every_split_has_some(tmp_path_factory, n_lines, shard_bytes):
    path = write(tmp_path_factory.mktemp("corpus"), {"some.txt": "".join(LINES[:n_lines])}) / "some.txt"
    if n_lines < 3:
        with pytest.raises(SbmtError, match="text of 3 lines or more for train and dev and test in some.txt"):
            corpus_source(path, tokenizer=TOKENIZER, shard_bytes=shard_bytes)
        return
    found = texts(corpus_source(path, tokenizer=TOKENIZER, shard_bytes=shard_bytes))
    assert sorted(line for text in found.values() for line in lines_of(text)) == sorted(LINES[:n_lines])
    assert all(found.values())


@pytest.mark.parametrize(
    ("kind", "shard_bytes", "n_shards"),
    [("txt", 1, 400), ("txt", 64, None), ("txt.gz", 500, None), ("txt.gz", 10**6, 1)],
)
def test_the_stream_does_not_depend_on_how_the_text_is_divided(tmp_path, kind, shard_bytes, n_shards):
    write(tmp_path, {f"train.{kind}": TEXT, "dev.txt": "a", "test.txt": "b"})
    source = corpus_source(tmp_path, tokenizer=TOKENIZER, shard_bytes=shard_bytes)
    assert streams(source)["train"].tolist() == [i for line in LINES for i in TOKENIZER.encode(line).tolist()]
    sizes = [len(TOKENIZER.decode(shard.make().symbols).encode()) for shard in source.shards if shard.split == "train"]
    assert sum(sizes) == len(TEXT.encode()) and n_shards in (None, len(sizes))
    longest = max(len(line.encode()) for line in LINES)
    assert all(size >= shard_bytes for size in sizes[:-1])
    assert all(size < shard_bytes + longest for size in sizes)


def test_text_may_be_a_file_a_folder_or_in_a_folder_of_data(tmp_path):
    folder = write(tmp_path / "lm", {"some.txt": TEXT})
    (folder / ".hidden.txt").write_text("hidden\n")
    (folder / "README.md").write_text("read me\n")
    sources = [corpus_source(p, tokenizer=TOKENIZER) for p in (tmp_path, folder, folder / "some.txt", str(tmp_path))]
    for source in sources[1:]:
        assert texts(source) == texts(sources[0]) and source.settings == sources[0].settings


LONG = "the cat " * 500


def test_a_line_may_be_longer_than_a_shard_and_lack_its_end(tmp_path):
    files = {"some.txt": f"{LONG}\na\n\n{LONG}", "dev.txt": "a", "test.txt.gz": "\n"}
    source = corpus_source(write(tmp_path, files), tokenizer=TOKENIZER, shard_bytes=9)
    assert list(texts(source).values()) == list(files.values())
    for text in (f"a\nb\n{LONG}\n", f"{LONG}\na\nb\n", f"\n\n\n{LONG}"):  # each split gets a line of these
        found = texts(corpus_source(write(tmp_path / "mixed", {"some.txt": text}), tokenizer=TOKENIZER))
        assert all(found.values()) and sorted("".join(found.values())) == sorted(text)


def test_a_mark_of_utf8_is_no_text(tmp_path):
    write(tmp_path, {"some.txt": b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n", "dev.txt": "a\n", "test.txt": "b\n"})
    for shard_bytes in (1, 99):
        source = corpus_source(tmp_path, tokenizer=TOKENIZER, shard_bytes=shard_bytes)
        assert texts(source)["train"] == "one\n\ufefftwo\n"


def test_without_a_tokeniser_one_is_trained_on_train_alone(tmp_path):
    write(tmp_path, NAMED | {"my-dev.txt": "zqzq zqzq zqzq zqzq zqzq\n" * 50})
    source = corpus_source(tmp_path, vocab_size=300, shard_bytes=200)
    tokenizer = Tokenizer(source.files["tokenizer.json"])
    assert tokenizer == train_tokenizer([TEXT, TEXT[:999]], 300)
    assert source.vocab_size == tokenizer.vocab_size
    assert source.settings["tokenizer"] == tokenizer.sha256 and source.settings["is_tokenizer_trained"]
    given_source = corpus_source(tmp_path, tokenizer=tokenizer, shard_bytes=200)
    assert not given_source.settings["is_tokenizer_trained"]
    for split, ids in streams(source).items():
        assert streams(given_source)[split].tolist() == ids.tolist()


def test_the_shared_text_is_a_corpus(shared_data):
    source = corpus_source(shared_data, tokenizer=TOKENIZER, shard_bytes=1 << 18)
    assert source.settings["bytes"] == {"train": 7_113_921, "dev": 1_515_064, "test": 1_256_449}
    last = TOKENIZER.decode(source.shards[-1].make().symbols)
    assert gzip.open(shared_data / "lm" / "wikitext-2.test.txt.gz").read().decode().endswith(last)


@pytest.mark.bad_input
@pytest.mark.parametrize(("name", "shard_bytes"), [("some.txt", 8), ("some.txt.gz", 10**6)])
def test_bytes_that_are_no_utf8_are_told_by_line(tmp_path, shard_bytes, name):
    broken = "".join(LINES[:20]).encode() + b"caf\xe9 \n" + TEXT.encode()
    write(tmp_path, {name: broken, "dev.txt": "a", "test.txt": "b"})
    source = corpus_source(tmp_path, tokenizer=TOKENIZER, shard_bytes=shard_bytes)
    with pytest.raises(SbmtError, match=r"UTF-8 in .*some.txt.*, line 21, got b'\\xe9"):
        streams(source)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "put text in UTF-8 there"),
        ({"some.txt": "one\ntwo\n"}, "text of 3 lines or more for train and dev and test in some.txt, got 2"),
        ({"dev.txt": "a\n", "test.txt": "b\n"}, "text of 1 lines or more"),
        ({"some.txt": "a\n", "some.txt.gz": "a\n"}, "some.txt once"),
    ],
)
def test_too_little_text_is_refused(tmp_path, files, words):
    with pytest.raises(SbmtError, match=words):
        corpus_source(write(tmp_path, files), tokenizer=TOKENIZER)


@pytest.mark.bad_input
def test_other_files_are_refused(tmp_path):
    (tmp_path / "some.tsv").write_text(TEXT)
    with pytest.raises(SbmtError, match=r"named \*.txt or \*.txt.gz"):
        corpus_source(tmp_path / "some.tsv", tokenizer=TOKENIZER)
    with pytest.raises(SbmtError, match="no such file or folder"):
        corpus_source(tmp_path / "none", tokenizer=TOKENIZER)
    with pytest.raises(SbmtError, match="shard_bytes ≥ 1"):
        corpus_source(tmp_path, tokenizer=TOKENIZER, shard_bytes=0)
