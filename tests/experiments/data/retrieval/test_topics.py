"""Pairs of documents about topics: what a label means, and that they are always the same."""

import numpy as np
import pytest

from sbmt.experiments.data.retrieval.topics import LENGTHS, generate_topic_pairs, topic_words
from tests.experiments.data.layouts import documents_of
from tests.statistics import binomial_p_values


def generator(seed=0):
    return np.random.Generator(np.random.PCG64(seed))


def topics_of(document, words):
    """Which topics a document has words of, apart from common words."""
    found = set(document.split(b" ")) - set(words[0])
    return {topic for topic, own in enumerate(words[1:]) if found & set(own)}


def pairs_of(examples):
    documents = documents_of(examples)
    return list(zip(documents[::2], documents[1::2], strict=True))


def test_a_label_says_whether_the_topics_are_the_same():
    words = topic_words(16)
    assert len({w for topic in words for w in topic}) == sum(map(len, words)), "a word of two topics proves nothing"
    examples = generate_topic_pairs(300, generator(), words)
    for (first, second), label in zip(pairs_of(examples), examples.labels, strict=True):
        assert (topics_of(first, words) == topics_of(second, words)) == bool(label)
        assert all(LENGTHS[0] <= len(d.split(b" ")) < LENGTHS[1] for d in (first, second))


@pytest.mark.statistical(share=0.001)
def test_labels_are_a_fair_coin_and_half_of_the_words_are_common(judge):
    words = topic_words(4)
    examples = generate_topic_pairs(2000, generator(1), words)
    written = [w for pair in pairs_of(examples) for d in pair for w in d.split(b" ")]
    n_common = sum(w in set(words[0]) for w in written)
    counts = ((int(examples.labels.sum()), 2000), (n_common, len(written)))
    judge(np.array([binomial_p_values(count, n, 0.5) for count, n in counts]))
