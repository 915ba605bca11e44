"""What turns tokens, ids or vectors, into vectors of the model's width."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sbmt.errors import SbmtError, check_sizes, describe
from sbmt.graph.padding import check_mask


class IdEmbedding(nn.Embedding):
    """A table of vectors; where several ids make up one token, their vectors stand side by side.

    Args:
        vocab_size: Number of ids.
        d_model: Width of a token.
        n_ids: Ids that make up one token; each has d_model / n_ids of its width.
        std: Standard deviation of the entries at the start.

    Raises:
        SbmtError: If a size is below 1, or the width does not divide among the ids.
    """

    def __init__(self, vocab_size: int, d_model: int, n_ids: int, std: float) -> None:
        check_sizes(vocab_size=vocab_size, d_model=d_model, n_ids=n_ids)
        if d_model % n_ids:
            raise SbmtError(f"n_ids that divides d_model {d_model}", n_ids, "change one of them")
        super().__init__(vocab_size, d_model // n_ids)
        nn.init.normal_(self.weight, std=std)
        self.n_ids = n_ids

    def forward(self, tokens: Int[Tensor, "batch n *ids"]) -> Float[Tensor, "batch n d_model"]:
        """Looks ids up; ``(batch, n)`` with one id per token, else ``(batch, n, n_ids)``.

        Raises:
            SbmtError: On ids of another type, shape or range, or on another device.
        """
        shape = () if self.n_ids == 1 else (self.n_ids,)
        is_integer = isinstance(tokens, Tensor) and tokens.dtype in (torch.int32, torch.int64)
        if not is_integer or tokens.dim() < 2 or tokens.shape[2:] != shape or 0 in tokens.shape:
            expected = f"token ids as an int64 tensor ({', '.join(['batch', 'n ≥ 1', *map(str, shape)])})"
            raise SbmtError(expected, describe(tokens), "encode the text first")
        _check_device(tokens, self.weight)
        low, high = (int(x) for x in torch.aminmax(tokens))
        if low < 0 or high >= self.num_embeddings:
            expected = f"token ids in [0, {self.num_embeddings})"
            raise SbmtError(expected, f"ids from {low} to {high}", "check the vocabulary")
        return super().forward(tokens).flatten(2)


class VectorEmbedding(nn.Linear):
    """A linear layer, for tokens that are vectors.

    Args:
        d_input: Entries of a token.
        d_model: Width that it is given.
        std: Standard deviation of the result at the start, for entries of variance 1.

    Raises:
        SbmtError: If a size is below 1.
    """

    def __init__(self, d_input: int, d_model: int, std: float) -> None:
        check_sizes(d_input=d_input, d_model=d_model)
        super().__init__(d_input, d_model)
        nn.init.normal_(self.weight, std=std / d_input**0.5)
        nn.init.zeros_(self.bias)

    def forward(
        self, tokens: Float[Tensor, "batch n d_input"], mask: Bool[Tensor, "batch n"] | None = None
    ) -> Float[Tensor, "batch n d_model"]:
        """Maps every vector; those at padding, where ``mask`` is False, are taken as zeros, whatever they hold.

        Raises:
            SbmtError: On tokens of another type or shape, or on another device, or a mask that does not fit them.
        """
        is_float = isinstance(tokens, Tensor) and tokens.is_floating_point()
        if not is_float or tokens.dim() != 3 or tokens.shape[2] != self.in_features or 0 in tokens.shape:
            expected = f"tokens as a floating-point tensor (batch, n ≥ 1, {self.in_features})"
            raise SbmtError(expected, describe(tokens), "give one vector per token")
        _check_device(tokens, self.weight)
        mask = check_mask("mask", mask, tokens.shape[0], tokens.shape[1], tokens.device)
        return super().forward(tokens if mask is None else tokens.masked_fill(~mask[..., None], 0.0))


def _check_device(tokens: Tensor, weight: Tensor) -> None:
    if tokens.device != weight.device:
        raise SbmtError(f"tokens on {weight.device}, where the model is", tokens.device, "move one of them with .to(…)")
