"""Tests fitted masks for a saved Hugging Face Transformers encoder, from Python and by the command."""

import json
import random

import pytest
import torch

import sbmt
from sbmt.experiments.sparsification.compare import compare
from sbmt.experiments.sparsification.pretrained import embed, load_encoder, tokenize
from sbmt.sparsification import load_sparsified

transformers = pytest.importorskip("transformers")

WORDS = [f"word{i}" for i in range(40)]
SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def saved(folder, model):
    """Returns the folder of a model and a tokenizer of forty words."""
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])}
    model.save_pretrained(folder)
    transformers.BertTokenizer(vocab=vocabulary).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    torch.manual_seed(0)
    config = transformers.BertConfig(**SIZES, vocab_size=45, max_position_embeddings=32)
    model = transformers.BertModel(config)
    with torch.no_grad():  # attention that is not uniform, so that masks matter
        for name in ("query", "key"):
            model.get_parameter(f"encoder.layer.0.attention.self.{name}.weight").mul_(20)
    return saved(tmp_path_factory.mktemp("encoder"), model)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    generator = random.Random(0)
    path = tmp_path_factory.mktemp("text") / "text.txt"
    lines = (" ".join(generator.choices(WORDS, k=generator.randint(4, 40))) for _ in range(64))
    path.write_text("\n\n".join(lines))
    return path


def test_embeddings_are_those_of_the_model_and_ignore_padding(encoder, text):
    model, tokenizer = load_encoder(encoder)
    texts = text.read_text().split("\n\n")
    together = embed(model, tokenize(tokenizer, texts[:8], length=24))
    alone = torch.cat([embed(model, tokenize(tokenizer, [t], length=24)) for t in texts[:8]])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(together.norm(dim=1), torch.ones(8))


def test_all_edges_give_full_attention_and_others_have_the_density_of_fitted_masks(encoder, text):
    model, tokenizer = load_encoder(encoder)
    batches = tokenize(tokenizer, text.read_text().split("\n\n"), length=24)
    torch.manual_seed(0)
    sparse = sbmt.sparsify(model, edges_per_query=6.0, n_clusters=64)
    sbmt.fit_block_models(sparse, batches[2:], steps=30, n_measured=1)
    wanted = embed(model, batches[2:5])

    def score(masked):
        return (embed(masked, batches[2:5]) * wanted).sum(-1)

    rows = {row["kind"]: row for row in compare(model, sparse, batches[:2], "cosine", score)}
    fitted = rows.pop("fitted")
    assert list(rows) == ["random", "window", "window and both ends", "oracle", "ideal rates"]
    for row in rows.values():
        assert row["density"] == pytest.approx(fitted["density"], abs=0.05)  # one key in twenty
    assert rows["random"]["cosine"] < fitted["cosine"] < 1 and rows["random"]["cosine"] < rows["oracle"]["cosine"]
    dense = sbmt.sparsify(model, edges_per_query=6.0, n_clusters=64, window=64)  # every pair is inside the window
    (full, *_) = compare(model, dense, batches[:2], "cosine", score)
    assert full["density"] == pytest.approx(1) and full["cosine"] == pytest.approx(1, abs=1e-5)


def test_command(succeed, refused, encoder, text, tmp_path):
    words = f"sparsify {encoder} --text {text} --edges-per-query 4 --clusters 16 --steps 2 --length 20 --output sparse"
    assert "window and both ends" in succeed(*words.split())
    found = json.loads((tmp_path / "sparse" / "masks.json").read_text())
    assert found["texts"] == 16 and len(found["kinds"]) == 6 and (tmp_path / "sparse" / "masks.png").exists()
    assert "| oracle " in (tmp_path / "sparse" / "masks.md").read_text("utf-8")
    model = load_sparsified(transformers.BertModel, tmp_path / "sparse").eval()
    assert model.config.sbmt["edges_per_query"] == 4
    assert embed(model, tokenize(load_encoder(encoder)[1], ["word1 word2"], 20)).shape == (1, 32)
    refused(words, "sparse to be absent, empty")


@pytest.mark.bad_input
def test_bad_input(refused, encoder, text, tmp_path):
    torch.manual_seed(0)
    decoder = transformers.GPT2Model(transformers.GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=45))
    saved(tmp_path / "decoder", decoder)
    saved(tmp_path / "broken", transformers.AutoModel.from_pretrained(encoder))
    (tmp_path / "broken" / "model.safetensors").write_bytes(b"no weights")
    (tmp_path / "few.txt").write_text("word1\n" * 5)
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\n" * 100)
    for words, error in [
        (f"sparsify {encoder}", "--text"),
        (f"sparsify {encoder} --text missing.txt", "cannot read missing.txt"),
        (f"sparsify {encoder} --text few.txt", "at least 64 lines"),
        (f"sparsify {encoder} --text latin.txt", "UTF-8"),
        (f"sparsify nowhere --text {text}", "config.json"),
        (f"sparsify broken --text {text}", "model.safetensors"),
        (f"sparsify decoder --text {text}", "non-causal"),
        (f"sparsify {encoder} --text {text} --examples 1", "at least 2 examples"),
        (f"sparsify {encoder} --text {text} --output few.txt", "few.txt to be absent, empty"),
    ]:
        refused(words, error)
