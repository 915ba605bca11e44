"""Tests how an encoder is distilled under masks."""

import copy

import pytest
import torch

import sbmt
from sbmt.experiments.sparsification.pretrained import embed

transformers = pytest.importorskip("transformers")
encoder = pytest.importorskip("results.measure.encoder", reason='needs pip install -e ".[pretrained]"')
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def test_distillation_brings_encoders_closer_to_the_original_and_leaves_it_as_it_was(monkeypatch):
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(**SIZES, vocab_size=50)).eval()
    for name, weight in model.named_parameters():
        if "attention" in name and weight.dim() == 2:  # uneven attention, so that masks matter
            weight.data.mul_(10)
    monkeypatch.setattr(encoder, "encoder", lambda: (model, None))
    before = copy.deepcopy(model.state_dict())
    batches = [{"input_ids": ids, "attention_mask": torch.ones_like(ids)} for ids in torch.randint(50, (4, 8, 24))]
    sparse = sbmt.sparsify(model, edges_per_query=3.0, n_clusters=32)
    sbmt.fit_block_models(sparse, batches, steps=100)
    wanted, cosine, densities = embed(model, batches), {}, {}
    kinds = ["fitted", "window"]
    for kind, masked, density in encoder.under_masks(sparse, batches, batches * 25, kinds):
        densities[kind] = density
        cosine[kind] = (embed(masked, batches) * wanted).sum(-1).mean().item()
    assert list(cosine) == ["full attention", "fitted", "fitted, distilled", "window", "window, distilled"]
    for kind in kinds:
        assert 1 - cosine[f"{kind}, distilled"] < 0.8 * (1 - cosine[kind])
    assert densities["window, distilled"] == densities["window"]
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
