"""Retrieval generated: pairs of documents about the same topic or about two. A control that needs no files.

Source: ours. The benchmark's pairs are citations between papers, which are not freely available.
"""

from functools import partial

import numpy as np

from sbmt.errors import check_sizes
from sbmt.experiments.data.source import Examples, Shard, Source, by_shard

COMMON, OWN = 40, 8
"""Number of words that all topics share, and of words that belong to each topic."""
LENGTHS = 20, 35
"""Documents have at least the first number of words, and fewer than the second."""


def topic_words(n_topics: int, seed: int = 0) -> list[list[bytes]]:
    """The common words, then those of each topic. A word is three to seven random letters.

    Example:
        >>> common, first = topic_words(1)
        >>> len(common), len(first)
        (40, 8)
    """
    check_sizes(n_topics=n_topics)
    generator = np.random.Generator(np.random.PCG64([seed, 0]))

    def word() -> bytes:
        return bytes(generator.integers(ord("a"), ord("z") + 1, generator.integers(3, 8)).astype(np.uint8))

    return [[word() for _ in range(n)] for n in (COMMON, *[OWN] * n_topics)]


def generate_topic_pairs(n_pairs: int, generator: np.random.Generator, words: list[list[bytes]]) -> Examples:
    """Pairs of documents, of one topic (label 1) or of two (label 0), with equal chances.

    A fair coin decides for every word whether it is one of its document's topic, or a common one. ``words`` come from
    :func:`topic_words`, for at least two topics.
    """
    common, own = words[0], words[1:]
    pairs, labels = [], []
    for _ in range(n_pairs):
        label = int(generator.integers(2))
        first = int(generator.integers(len(own)))
        second = first if label else (first + 1 + int(generator.integers(len(own) - 1))) % len(own)
        documents = []
        for topic in (first, second):
            n_words = int(generator.integers(*LENGTHS))
            is_own, which = generator.random(n_words) < 0.5, generator.integers(COMMON * OWN, size=n_words)
            chosen = (
                own[topic][w % OWN] if mine else common[w % COMMON] for mine, w in zip(is_own, which, strict=True)
            )
            documents.append(b" ".join(chosen))
        pairs.append(tuple(documents))
        labels.append(label)
    return Examples.of(pairs, labels)


def topics_source(
    *, n_topics: int = 16, n_train: int = 20_000, n_dev: int = 1_000, n_test: int = 2_000, seed: int = 0
) -> Source:
    """Generated pairs as a source. The splits share topics and words, but no documents.

    Raises:
        SbmtError: If a number is not positive, or there is only one topic.
    """
    check_sizes(n_topics=n_topics - 1, n_train=n_train, n_dev=n_dev, n_test=n_test)
    sizes = {"train": n_train, "dev": n_dev, "test": n_test}
    words = topic_words(n_topics, seed)

    def make(n_pairs: int, stream: int) -> Examples:
        return generate_topic_pairs(n_pairs, np.random.Generator(np.random.PCG64([seed, stream])), words)

    return Source(
        name="retrieval-reduced",
        task="retrieval",
        origin="generated",
        class_names=("unrelated", "related"),
        vocab_size=257,
        first_id=1,
        settings={"n_topics": n_topics, "sizes": sizes, "seed": seed},
        shards=tuple(Shard(s, partial(make, n, i), s) for i, (s, n) in enumerate(sizes.items(), start=1)),
        arrange=by_shard,
    )
