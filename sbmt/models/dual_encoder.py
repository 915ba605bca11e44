"""A label for a pair of documents that do not see each other."""

from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from sbmt.errors import SbmtError, check_choice, check_sizes
from sbmt.models.classifier import mean_of_real
from sbmt.models.encoder import Encoder, ModelOutput, check_encoder

PairFeatures = Literal["products", "concatenation"]


class DualEncoder(nn.Module):
    r"""One encoder reads both documents of a pair, each by itself; an MLP compares their means x and y.

    ``pair_features="products"`` gives the MLP $[x, y, x \odot y, x - y]$ and one hidden layer of width ``d_hidden``, as
    in the pipeline that the paper uses; ``"concatenation"`` gives it $[x, y]$ and two hidden layers, ``d_hidden`` and
    half of it, as in Long Range Arena's own code.

    Args:
        encoder: What reads a document.
        n_labels: Logits per pair.
        d_hidden: Width inside the head, at least 2.
        pair_features: What the head sees.
        is_padded_mean: See :func:`~sbmt.models.classifier.mean_of_real`.

    Paper: appendix, retrieval; the head is the pipeline's.
    """

    def __init__(
        self,
        encoder: Encoder,
        n_labels: int,
        d_hidden: int,
        *,
        pair_features: PairFeatures = "products",
        is_padded_mean: bool = False,
    ) -> None:
        super().__init__()
        check_sizes(n_labels=n_labels, d_hidden=d_hidden)
        check_choice("pair_features", pair_features, PairFeatures)
        d_model = check_encoder(encoder).d_model
        self.encoder, self.pair_features, self.is_padded_mean = encoder, pair_features, is_padded_mean
        if pair_features == "products":
            widths = [4 * d_model, d_hidden]
        else:
            widths = [2 * d_model, d_hidden, max(1, d_hidden // 2)]
        layers: list[nn.Module] = []
        for d_in, d_out in pairwise(widths):
            layers += [nn.Linear(d_in, d_out), nn.ReLU()]
        self.head = nn.Sequential(*layers, nn.Linear(widths[-1], n_labels))

    def forward(
        self,
        tokens: Int[Tensor, "batch 2 n"],
        mask: Bool[Tensor, "batch 2 n"] | None = None,
        *,
        generator: torch.Generator | None = None,
        return_edges: bool = False,
    ) -> ModelOutput:
        """Logits ``(batch, n_labels)``, and the attention of all 2 · batch documents, a pair's two next to each other.

        Raises:
            SbmtError: If the documents do not come in pairs.
        """
        for name, tensor in (("tokens", tokens), ("mask", mask)):
            is_pair = isinstance(tensor, Tensor) and tensor.dim() == 3 and tensor.shape[1] == 2
            if not is_pair and not (name == "mask" and mask is None):
                got = tuple(tensor.shape) if isinstance(tensor, Tensor) else type(tensor).__name__
                raise SbmtError(f"{name} of shape (batch, 2, n)", got, "give both documents of each pair")
        flat = None if mask is None else mask.flatten(0, 1)
        encoded = self.encoder(tokens.flatten(0, 1), flat, generator=generator, return_edges=return_edges)
        means = mean_of_real(encoded.values, flat, self.is_padded_mean)
        x, y = means.unflatten(0, (-1, 2)).unbind(1)  # batch d_model
        parts = [x, y, x * y, x - y] if self.pair_features == "products" else [x, y]
        return ModelOutput(self.head(torch.cat(parts, -1)), encoded.attention)
