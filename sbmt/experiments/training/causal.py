"""Causal language models: on text, and on multi-query associative recall."""

from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from sbmt.experiments.data.batches import Batch
from sbmt.experiments.data.corpus import Blocks
from sbmt.experiments.data.multi_query import NO_ANSWER, check_multi_query, sample_multi_query
from sbmt.experiments.data.tokenizer import Tokenizer
from sbmt.experiments.training.data import Feed, TaskData
from sbmt.experiments.training.generated import GeneratedConfig
from sbmt.experiments.training.tasks import CorpusConfig
from sbmt.models import CausalLM
from sbmt.registration import option

LANGUAGE, MULTI_QUERY = "language", "multi_query"
_CAUSAL: dict[str, Any] = {"positions": "rotary", "option_defaults": (("causal", True),)}
_SMALL: dict[str, Any] = {"d_model": 128, "d_hidden": 512, "n_heads": 4, "n_layers": 2, "learning_rate": 1e-3}
_SMALL |= {"data": "corpus-reduced", "length": 256, "batch_size": 32, "dropout": 0.0, "attention_dropout": 0.0}
_SMALL |= {"steps": 2000, "warmup_steps": 100, "eval_every": 500}


@dataclass(frozen=True)
class LanguageModelConfig(CorpusConfig, tasks=(LANGUAGE,), **_CAUSAL, **_SMALL):
    """A run of a causal language model on a prepared corpus; by default one for a CPU and a few megabytes of text."""

    def make_model(self, info: dict[str, Any]) -> nn.Module:
        """A causal language model."""
        return CausalLM(self.make_encoder(info["vocab_size"], None))

    def feed(self, blocks: Blocks, tokenizer: Tokenizer, is_training: bool) -> Feed:
        """Blocks, of which each token but the first has to be predicted from those before it."""
        return Feed(len(blocks), lambda examples, part, number: next_tokens(blocks, examples, part))

    def baselines(self, data: TaskData, name: str, test: Any) -> dict[str, Any]:
        """Bits per byte of the test text, and what the frequencies of tokens alone reach."""
        found = super().baselines(data, name, test)
        assert data.tokenizer is not None  # of a corpus
        blocks = data.blocks[name]
        text = data.tokenizer.decode(blocks.symbols[: found["n_test"] * (blocks.length - 2)].tolist())
        n_predicted = len(blocks.symbols[: found["n_test"] * (blocks.length - 2)]) + found["n_test"]  # and the ends
        return {"bits_per_byte": test.loss * n_predicted / log(2) / len(text.encode())} | found


def next_tokens(blocks: Blocks, examples: NDArray[np.int64], part: slice) -> Batch:
    """A part of a batch of blocks, whose labels are the tokens that follow, row by row."""
    tokens, is_real = blocks.rows(examples)
    is_followed = np.zeros_like(is_real)
    is_followed[:, :-1] = is_real[:, 1:]
    n_here, n_all = int(is_followed[part].sum()), int(is_followed.sum())
    weight = n_here * len(examples) / (len(is_real[part]) * n_all)
    labels = np.roll(tokens, -1, 1)[part][is_followed[part]]
    given, real, asked = (torch.from_numpy(x[part]) for x in (tokens, is_real, is_followed))
    return Batch(given, real, torch.from_numpy(labels), selected=asked, weight=weight)


@dataclass(frozen=True)
class MultiQueryConfig(GeneratedConfig, tasks=(MULTI_QUERY,), d_model=64, d_hidden=128, embedding_std=0.02, **_CAUSAL):
    """A run on multi-query associative recall; embeddings, which also make the logits, start small."""

    n_pairs: int = option(8, "pairs of a key and a value, each of which is asked for once")
    vocab_size: int = option(8192, "symbols; the first half of them are keys, the others values")

    def __post_init__(self) -> None:
        check_multi_query(self.length, self.n_pairs, self.vocab_size)
        super().__post_init__()

    def make_model(self, info: dict[str, Any]) -> nn.Module:
        """A causal language model."""
        return CausalLM(self.make_encoder(self.vocab_size, None))

    def sample(self, n: int, generator: torch.Generator) -> Batch:
        """Draws sequences; every query has a label."""
        tokens, answers = sample_multi_query(n, self.length, self.n_pairs, self.vocab_size, generator=generator)
        is_query = answers != NO_ANSWER
        return Batch(tokens, torch.ones_like(is_query), answers[is_query], selected=is_query)
