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
from sbmt.experiments.training.config import family_defaults
from sbmt.experiments.training.data import Feed, TaskData
from sbmt.experiments.training.generated import GeneratedConfig
from sbmt.experiments.training.tasks import CorpusConfig
from sbmt.models import CausalLM
from sbmt.models.encoder import Positions
from sbmt.registration import option

LANGUAGE, MULTI_QUERY = "language", "multi_query"


@dataclass(frozen=True)
class LanguageModelConfig(CorpusConfig):
    """A run of a causal language model on a prepared corpus; by default one for a CPU and a few megabytes of text."""

    task: str = option(LANGUAGE, "always language")
    positions: Positions = option("rotary", "positions of tokens: learned, rotary or none")
    option_defaults: tuple[tuple[str, Any], ...] = family_defaults(causal=True)
    data: str = option("corpus-reduced", "name of the prepared corpus")
    length: int = option(256, "tokens of a block, start and end included")
    batch_size: int = option(32, "blocks per optimiser step, over all devices")
    steps: int = option(2000, "optimiser steps")
    warmup_steps: int = option(100, "steps over which the learning rate rises; then it falls, both along a line")
    eval_every: int = option(500, "steps between two evaluations on dev, each of which leaves a checkpoint")
    learning_rate: float = option(1e-3, "AdamW's largest learning rate")
    embedding_std: float = option(0.1, "standard deviation of embeddings, which also make the logits, at the start")
    d_model: int = option(128, "width")
    d_hidden: int = option(512, "width inside the MLPs")
    n_heads: int = option(4, "heads per layer")
    n_layers: int = option(2, "layers")
    dropout: float = option(0.0, "dropout after embeddings, attention and MLPs")
    attention_dropout: float = option(0.0, "dropout on the attention weights")

    tasks = (LANGUAGE,)

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
class MultiQueryConfig(GeneratedConfig):
    """A run on multi-query associative recall."""

    task: str = option(MULTI_QUERY, "always multi_query")
    positions: Positions = option("rotary", "positions of tokens: learned, rotary or none")
    option_defaults: tuple[tuple[str, Any], ...] = family_defaults(causal=True)
    n_pairs: int = option(8, "pairs of a key and a value, each of which is asked for once")
    vocab_size: int = option(8192, "symbols; the first half of them are keys, the others values")
    learning_rate: float = option(1e-3, "Adam's learning rate")
    d_model: int = option(64, "width")
    d_hidden: int = option(128, "width inside the MLPs")
    embedding_std: float = option(0.02, "standard deviation of embeddings, which also make the logits, at the start")
    convolution: int = option(0, "tokens that a convolution of the embeddings covers; 0: none")

    tasks = (MULTI_QUERY,)

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
