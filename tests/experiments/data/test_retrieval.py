"""Tests pairs of documents in Long Range Arena's files, and generated pairs about topics."""

import gzip

import numpy as np
import pytest

from sbmt.errors import SbmtError
from sbmt.experiments.data import retrieval as module
from sbmt.experiments.data.retrieval import LENGTHS, generate_topic_pairs, retrieval_files, topic_words
from tests.experiments.data.layouts import documents_of
from tests.statistics import binomial_p_values

PARTS = ("train", "eval", "test")
PAIRS = [  # label as written, two texts, and label as read
    (b"1.0", b'a bare " quote', b'""', 1),
    (b"0.0", "next line \u0085 here".encode(), "line separator \u2028 é 漢 🎬".encode(), 0),
    (b"1", b"carriage\rreturn", b"", 1),
    (b"0", b"x" * 9_999, b"y" * 10_001, 0),
]
READ = [(a[:10_000], b[:10_000]) for _, a, b, _ in PAIRS]


def tsv(pairs, end=b"\n"):
    return b"".join(b"\t".join([label, b"P01-1", b"P02-2", a, b]) + end for label, a, b, *_ in pairs)


def write(folder, contents, suffix=".tsv"):
    """Writes the files of the three splits."""
    for part, content in zip(PARTS, contents, strict=True):
        content = gzip.compress(content) if suffix.endswith("gz") else content
        (folder / f"new_aan_pairs.{part}{suffix}").write_bytes(content)


@pytest.mark.parametrize("content, suffix", [(tsv(PAIRS, b"\r\n"), ".tsv"), (b"\xef\xbb\xbf" + tsv(PAIRS), ".tsv.gz")])
def test_pairs_are_read_byte_for_byte(pool_of, tmp_path, content, suffix):
    write(tmp_path, [content] * 3, suffix)
    source = retrieval_files(str(tmp_path / f"new_aan_pairs.eval{suffix}"))  # naming one file also finds the others
    pool, documents = pool_of(source)
    assert documents == READ * 3
    assert pool.labels.tolist() == [label for *_, label in PAIRS] * 3
    assert pool.splits.tolist() == ["train"] * 4 + ["dev"] * 4 + ["test"] * 4


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "line, message",
    [
        (b"1.0\tid\tid\n", "3 columns"),  # the release without texts
        (b"0.5\tid\tid\ta\tb\n", "label 0.0 or 1.0"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, monkeypatch, line, message):
    monkeypatch.setattr(module, "AT_ONCE", 3)
    write(tmp_path, [tsv(PAIRS), tsv(PAIRS) + line + tsv(PAIRS), b""])
    source = retrieval_files(tmp_path)
    with pytest.raises(SbmtError, match=message) as error:
        list(source.parts())
    assert "new_aan_pairs.eval.tsv, line 5" in str(error.value)


def topics_of(document, words):
    """Returns the topics whose words occur in a document, apart from common words."""
    found = set(document.split(b" ")) - set(words[0])
    return {topic for topic, own in enumerate(words[1:]) if found & set(own)}


def pairs_of(examples):
    documents = documents_of(examples)
    return list(zip(documents[::2], documents[1::2], strict=True))


def test_a_label_says_whether_the_topics_are_the_same():
    words = topic_words(16)
    assert len({w for topic in words for w in topic}) == sum(map(len, words)), "a word of two topics proves nothing"
    examples = generate_topic_pairs(300, np.random.default_rng(0), words)
    for (first, second), label in zip(pairs_of(examples), examples.labels, strict=True):
        assert (topics_of(first, words) == topics_of(second, words)) == bool(label)
        assert all(LENGTHS[0] <= len(d.split(b" ")) < LENGTHS[1] for d in (first, second))


@pytest.mark.statistical(share=0.001)
def test_labels_are_a_fair_coin_and_half_of_the_words_are_common(judge):
    words = topic_words(4)
    examples = generate_topic_pairs(2000, np.random.default_rng(1), words)
    written = [w for pair in pairs_of(examples) for d in pair for w in d.split(b" ")]
    n_common = sum(w in set(words[0]) for w in written)
    counts = ((int(examples.labels.sum()), 2000), (n_common, len(written)))
    judge(np.array([binomial_p_values(count, n, 0.5) for count, n in counts]))
