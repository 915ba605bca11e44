"""Enlarged images, on which networks are asked about longer inputs than those of training."""

import torch

from results.measure.longer_inputs import enlarged, prolonged
from sbmt.models import Encoder, SequenceClassifier


def test_every_pixel_becomes_a_square():
    larger = enlarged(torch.tensor([[1, 2, 3, 4]]), 1, 16)
    assert larger.view(4, 4).tolist() == [[1, 1, 2, 2], [1, 1, 2, 2], [3, 3, 4, 4], [3, 3, 4, 4]]


def test_full_attention_answers_enlarged_images_alike():
    sizes = {"d_model": 8, "d_hidden": 8, "n_heads": 2, "n_layers": 2, "embedding_std": 1.0}
    model = SequenceClassifier(Encoder(5, 9, attention="full", **sizes), n_labels=2, d_hidden=8).double().eval()
    tokens = torch.randint(5, (3, 9))
    for length in (9, 36, 81):
        longer = prolonged("Pathfinder", model, length)(enlarged(tokens, 1, length))
        torch.testing.assert_close(longer.values, model(tokens).values)
