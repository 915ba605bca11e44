"""Tasks on generated sequences: repeated tokens, associative recall and multi-query recall."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sbmt.experiments.data.batches import Batch
from sbmt.experiments.data.recall import NO_ANSWER, check_multi_query, check_recall, sample_multi_query, sample_recall
from sbmt.experiments.data.repeated_tokens import D_VALUE, sample_fresh_values, sample_repeated_tokens
from sbmt.experiments.data.tokenizer import Tokenizer
from sbmt.experiments.files import load_weights
from sbmt.experiments.training.config import CAUSAL, TrainingConfig
from sbmt.experiments.training.data import Feed, Sequences, TaskData
from sbmt.experiments.training.run import load_run
from sbmt.layers.registry import option
from sbmt.models import CausalLM, TokenTagger

TEST_SEED = 1_000_003  # added to evaluation seeds, so that no training run has the same sequences


@dataclass(frozen=True)
class GeneratedConfig(TrainingConfig, positions="none"):
    """A run on generated sequences, trained by Adam at a constant learning rate with an optional cooldown.

    By default, there is no position encoding, since labels do not depend on positions.
    """

    cooldown: int = option(0, "number of final steps over which the learning rate falls linearly to 0")
    test_sequences: int = option(1024, "number of sequences in the final evaluation")

    is_generated = True
    evaluation_batch = 64

    def sample(self, n: int, generator: torch.Generator) -> Batch:
        """Draws n sequences, which are the same whether drawn together or one by one."""
        raise NotImplementedError

    def open_data(self, tokenizer: Tokenizer | None = None, test_seed: int = 0) -> TaskData:
        """Returns sequences for training and testing, drawn from different generators."""
        train, test = Sequences(self.sample, self.seed), Sequences(self.sample, TEST_SEED + test_seed)
        sizes = {"train": (self.batch_size * self.steps, train), "test": (self.test_sequences, test)}
        return TaskData({name: Feed(n, sequences, is_endless=True) for name, (n, sequences) in sizes.items()})


@dataclass(frozen=True)
class RepeatedTokensConfig(GeneratedConfig, tasks=("repeated_tokens",)):
    """A run on repeated tokens, by default with the settings of the demo."""

    fresh_values: bool = option(False, "use new random vectors as values in each sequence; tokens are noisy copies")

    def make_model(self, info: dict[str, Any]) -> nn.Module:
        """Builds a model that labels every token."""
        encoder = self.make_encoder(None, d_input=D_VALUE) if self.fresh_values else self.make_encoder(self.length)
        return TokenTagger(encoder, 1)

    def sample(self, n: int, generator: torch.Generator) -> Batch:
        """Draws sequences in which every token has a label."""
        sample = sample_fresh_values if self.fresh_values else sample_repeated_tokens
        tokens, labels = sample(n, self.length, generator=generator)
        return Batch(tokens, torch.ones_like(labels, dtype=torch.bool), labels.long().flatten())


SIZES = {"demo": RepeatedTokensConfig(), "paper": RepeatedTokensConfig(length=256, batch_size=256, steps=2000)}
"""Named settings: ``demo`` trains in minutes on two cores, and ``paper`` is the synthetic column of Table 7."""


def fitted(**overrides: Any) -> dict[str, Any]:
    """Returns settings for the preset ``fitted``. By default, rates fall over the last third of the steps."""
    settings: dict[str, Any] = {"steps": 2000, "learning_rate": 3e-3, "block_model_rate": 1e-2, "n_clusters": 256}
    settings |= {name: value for name, value in overrides.items() if value is not None}
    return {"cooldown": settings["steps"] // 3} | settings


@dataclass(frozen=True)
class RecallConfig(GeneratedConfig, tasks=("recall",), learning_rate=3e-3, d_model=64, d_hidden=64):
    """Recall the value that is stored with a key among distractors. Full attention learns this task in 200 steps."""

    length: int = 0  # set to the sum of pairs, queries and distractors
    n_pairs: int = option(16, "number of items, each a key with a value, that are queried")
    n_queries: int = option(16, "number of queries, each a key whose value is to be recalled")
    n_distractors: int = option(32, "number of items that are never queried")
    n_keys: int = option(128, "number of different keys")
    n_values: int = option(32, "number of different values")
    permutation: bool = option(False, "query each key by its successor")

    def __post_init__(self) -> None:
        check_recall(*self._sizes)
        object.__setattr__(self, "length", self.n_pairs + self.n_queries + self.n_distractors)
        super().__post_init__()

    @property
    def _sizes(self) -> tuple[int, int, int, int, int]:
        return self.n_pairs, self.n_queries, self.n_distractors, self.n_keys, self.n_values

    def make_model(self, info: dict[str, Any]) -> nn.Module:
        """Builds a model that labels tokens, each of which has a key id and a value id."""
        vocab_size = self.n_keys + self.n_values + 1  # plus an id that marks queries
        return TokenTagger(self.make_encoder(vocab_size, n_ids=2), self.n_values)

    def sample(self, n: int, generator: torch.Generator) -> Batch:
        """Draws sequences; every query has a label."""
        tokens, answers = sample_recall(n, *self._sizes, permutation=self.permutation, generator=generator)
        is_query = answers != NO_ANSWER
        return Batch(tokens, torch.ones_like(is_query), answers[is_query], selected=is_query)

    @property
    def evaluation_batch(self) -> int:  # type: ignore[override]
        """Number of examples with 4096 tokens in total, which bounds the memory for all pairs of long sequences."""
        return max(1, 4096 // self.length)


@dataclass(frozen=True)
class MultiQueryConfig(GeneratedConfig, tasks=("multi_query",), d_model=64, d_hidden=128, embedding_std=0.02, **CAUSAL):
    """Repeat the value that followed a key earlier. Embeddings start small, since they also produce the logits."""

    n_pairs: int = option(8, "number of key-value pairs, each of which is queried once")
    vocab_size: int = option(8192, "number of symbols; the first half are keys, the others values")
    convolution: int = option(0, "width in tokens of a convolution of the embeddings; 0 for none")
    start: str = option("", "folder of a run that provides the initial weights; its length may differ")

    def __post_init__(self) -> None:
        check_multi_query(self.length, self.n_pairs, self.vocab_size)
        super().__post_init__()

    def make_model(self, info: dict[str, Any]) -> nn.Module:
        """Builds a causal language model."""
        return CausalLM(self.make_encoder(self.vocab_size))

    def start_from(self, model: nn.Module) -> dict[str, Any]:
        """Loads all weights of the run in the folder ``start``, if one is named."""
        if self.start:
            load_weights(model, load_run(Path(self.start)).model.state_dict(), Path(self.start))
        return {}

    def sample(self, n: int, generator: torch.Generator) -> Batch:
        """Draws sequences; every query has a label."""
        tokens, answers = sample_multi_query(n, self.length, self.n_pairs, self.vocab_size, generator=generator)
        is_query = answers != NO_ANSWER
        return Batch(tokens, torch.ones_like(is_query), answers[is_query], selected=is_query)
