"""Tests fitted masks in small models of Hugging Face Transformers, built from their configurations."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn.utils import parametrizations, prune

import sbmt
from sbmt import ExtraKeys
from sbmt.sparsification import load_sparsified
from sbmt.sparsification.convert import fitted_layers
from sbmt.sparsification.huggingface import attend

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

WORDS = {"vocab_size": 50, "max_position_embeddings": 64}
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SHARED = {"num_key_value_heads": 2}
SMALL = {"n_clusters": 16}


MODELS = {  # two query heads share a key head in EuroBERT, Llama and Qwen
    "bert": (transformers.BertForMaskedLM, SIZES | WORDS),
    "distilbert": (transformers.DistilBertModel, WORDS | {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4}),
    "eurobert": (transformers.EuroBertModel, SIZES | WORDS | ENDS | SHARED | {"head_dim": 8}),
    "vit": (transformers.ViTForImageClassification, SIZES | {"image_size": 16, "patch_size": 4, "num_labels": 3}),
    "gpt2": (transformers.GPT2LMHeadModel, ENDS | WORDS | {"n_embd": 32, "n_layer": 2, "n_head": 4}),
    "llama": (transformers.LlamaForCausalLM, SIZES | WORDS | ENDS | SHARED),
    "qwen": (transformers.Qwen2ForCausalLM, SIZES | WORDS | ENDS | SHARED),
    "clip": (transformers.CLIPTextModel, SIZES | WORDS | ENDS),
    "t5": (
        transformers.T5EncoderModel,
        WORDS | {"d_model": 32, "d_ff": 64, "num_layers": 2, "num_heads": 4},
    ),
    "bart": (transformers.BartModel, WORDS | {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1}),
    "decoding bert": (transformers.BertLMHeadModel, SIZES | WORDS | {"is_decoder": True, "add_cross_attention": True}),
}


def make(name, **more):
    torch.manual_seed(0)
    kind, settings = MODELS[name]
    return kind(kind.config_class(**settings | more)).eval()


def sentences():
    """Returns three sequences, one of which is padded."""
    words = torch.randint(3, 50, (3, 20), generator=torch.Generator().manual_seed(1))
    return {"input_ids": words, "attention_mask": (torch.arange(20) < torch.tensor([[20], [12], [20]])).long()}


def pictures():
    return {"pixel_values": torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(1))}


def prompts():
    """Returns three sequences, one of which is padded at its start."""
    batch = sentences()
    return batch | {"attention_mask": batch["attention_mask"].flip(1)}


CASES = [("bert", sentences), ("distilbert", sentences), ("eurobert", sentences), ("vit", pictures)]
CASES += [("gpt2", prompts), ("llama", prompts), ("qwen", sentences)]


def sparsified(model):
    return sbmt.sparsify(model, edges_per_query=4.0, **SMALL)


def saturated(model):
    """Returns a model whose masks contain every pair."""
    model = sparsified(model)
    for layer in fitted_layers(model).values():
        layer.log_start.fill_(30.0)
    return model


def answers(model, batch):
    with torch.no_grad():
        output = model(**batch)[0]
    return output[batch["attention_mask"].bool()] if "attention_mask" in batch else output


@pytest.mark.parametrize(("name", "batch"), CASES)
def test_with_all_edges_a_model_gives_the_same_outputs(name, batch):
    model = make(name).double()
    inputs = {name: x.double() if x.is_floating_point() else x for name, x in batch().items()}
    sparse = saturated(model)
    torch.testing.assert_close(answers(sparse, inputs), answers(model, inputs))
    assert model.config._attn_implementation == "sdpa" and not hasattr(model.config, "sbmt")


def test_scores_are_scaled_as_the_model_scales_them():
    model = make("bert").double()
    for module in model.modules():
        if hasattr(module, "scaling"):
            module.scaling *= 5
    torch.testing.assert_close(answers(saturated(model), sentences()), answers(model, sentences()))


@pytest.mark.parametrize(("name", "batch"), CASES)
def test_masks_are_sparse_and_the_implementation_can_be_switched(name, batch):
    model = make(name)
    sparse, inputs = sbmt.sparsify(model, edges_per_query=2.0, **SMALL), batch()
    sbmt.fit_block_models(sparse, [inputs], steps=2)
    first, second = answers(sparse, inputs), answers(sparse, inputs)
    assert not torch.equal(first, second), "a mask is drawn for every call"
    sparse.set_attn_implementation("sdpa")
    torch.testing.assert_close(answers(sparse, inputs), answers(model, inputs))
    sparse.set_attn_implementation("sbmt")
    assert not torch.equal(answers(sparse, inputs), answers(model, inputs))


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen"])
def test_a_decoder_is_causal_and_generates_with_a_cache(name):
    model, batch = make(name), prompts()
    sparse = sbmt.sparsify(model, edges_per_query=4.0, **SMALL)
    changed = dict(batch, input_ids=batch["input_ids"].clone())
    changed["input_ids"][:, 15:] = 7
    found = []
    for inputs in (batch, changed):
        torch.manual_seed(5)
        found.append(sparse(**inputs).logits[:, :15].detach())
    assert torch.equal(*found)
    wanted = model.generate(**batch, max_new_tokens=6, do_sample=False)
    assert torch.equal(saturated(model).generate(**batch, max_new_tokens=6, do_sample=False), wanted)


def test_dropout_and_gradients_while_training():
    sparse = sbmt.sparsify(make("bert"), edges_per_query=4.0, **SMALL).train()
    sparse(**sentences(), labels=sentences()["input_ids"]).loss.backward()
    query = sparse.bert.encoder.layer[0].attention.self.query.weight.grad
    assert query is not None and query.abs().max() > 0
    assert {layer.dropout for layer in fitted_layers(sparse).values()} == {0.1}


@pytest.mark.parametrize(("name", "batch"), [CASES[0], CASES[3], CASES[4]])
def test_a_sparse_model_is_saved_and_loaded(name, batch, tmp_path):
    sparse = sbmt.sparsify(make(name), edges_per_query=4.0, **SMALL)
    sbmt.fit_block_models(sparse, [batch()], steps=2)
    sparse.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["sbmt"]["edges_per_query"] == 4.0
    again = load_sparsified(type(sparse), tmp_path)
    before, after = sparse.state_dict(), again.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    if name == "bert":  # a part of the model can be loaded, too
        part, whole = load_sparsified(transformers.BertModel, tmp_path), sparse.bert.state_dict()
        assert all(torch.equal(t, whole[name]) for name, t in part.state_dict().items() if "pooler" not in name)
    found = []
    for model in (sparse, again):
        torch.manual_seed(5)
        found.append(answers(model, batch()))
    assert torch.equal(*found)


def test_what_cannot_be_loaded_says_why(tmp_path):
    model = make("bert")
    model.save_pretrained(tmp_path / "full")
    with pytest.raises(sbmt.SbmtError, match=r"create one with sbmt.sparsify"):
        load_sparsified(transformers.BertForMaskedLM, tmp_path / "full")
    with pytest.raises(sbmt.SbmtError, match="a model class.* got <class .*Linear"):
        load_sparsified(torch.nn.Linear, tmp_path / "full")
    sbmt.sparsify(model, edges_per_query=4.0, **SMALL).save_pretrained(tmp_path / "sparse")
    weights = load_file(tmp_path / "sparse" / "model.safetensors")
    save_file(
        {k: w for k, w in weights.items() if "fitted_mask.clusters" not in k}, tmp_path / "sparse" / "model.safetensors"
    )
    with pytest.raises(sbmt.SbmtError, match="no bert.encoder.layer.0.attention.self.fitted_mask.clusters"):
        load_sparsified(transformers.BertForMaskedLM, tmp_path / "sparse")


@pytest.mark.parametrize(
    ("name", "more", "settings", "why"),
    [
        ("decoding bert", {}, {}, "encoder or decoder alone"),
        ("bart", {}, {}, "encoder or decoder alone"),
        (
            "qwen",
            {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0},
            {},
            "attention without a window",
        ),
        ("bert", {}, {"causal": True}, "all masks or none must be causal"),
        ("bert", {}, {"exploration": ExtraKeys(2)}, "exploration to be of a type that JSON can store, got ExtraKeys"),
    ],
)
def test_unsupported_attentions_and_settings_are_refused(name, more, settings, why):
    with pytest.raises(sbmt.SbmtError, match=why):
        sbmt.sparsify(make(name, **more), edges_per_query=4.0, **settings)


def bert_without_masks():
    sparsified(make("bert"))  # this registers the attention
    model = make("bert")
    model.set_attn_implementation("sbmt")
    return model


NO_WEIGHTS = r"output_attentions=False, .*set_attn_implementation\(\"eager\"\)"


@pytest.mark.parametrize(
    ("model", "options", "why"),
    [
        (lambda: sparsified(make("clip")), {"attention_mask": None}, "got a different kind"),
        (lambda: sparsified(make("llama")), {"attention_mask": torch.ones(3, 1, 20, 20)}, "a mask of query-key pairs"),
        (lambda: sparsified(make("llama")), {"past_key_values": "static"}, "do not use a static cache"),
        (lambda: sparsified(make("t5")), {}, "got position_bias from T5Attention"),
        (lambda: sparsified(make("bert")), {"attention_mask": torch.ones(3, 1, 20, 20)}, "a mask of query-key pairs"),
        (lambda: sparsified(make("bert")), {"output_attentions": True}, NO_WEIGHTS),
        (lambda: sparsified(make("bert", output_attentions=True)), {}, NO_WEIGHTS),
        (bert_without_masks, {}, "call sbmt.sparsify first"),
    ],
)
def test_unsupported_requests_are_refused(model, options, why):
    model = model()
    if options.get("past_key_values") == "static":
        options = {"past_key_values": transformers.StaticCache(model.config, max_cache_len=32)}
    with pytest.raises(sbmt.SbmtError, match=why):
        model(**sentences() | options)


def test_whatever_changes_scores_is_refused_and_the_rest_is_not():
    sparse = saturated(make("bert"))
    module = sparse.bert.encoder.layer[0].attention.self
    heads = [torch.randn(2, 4, 6, 8) for _ in range(3)]
    wanted, _ = attend(module, *heads, None)
    harmless = {"position_ids": torch.arange(6), "use_cache": True, "is_causal": False, "softcap": None}
    torch.testing.assert_close(attend(module, *heads, None, **harmless)[0], wanted)
    for name, value in {"softcap": 5.0, "s_aux": torch.zeros(4), "is_causal": True, "sliding_window": 4}.items():
        with pytest.raises(sbmt.SbmtError, match=name):
            attend(module, *heads, None, **{name: value})


class LowRank(torch.nn.Module):
    """A projection with an adapter, as in LoRA, which has no weight of its own."""

    def __init__(self, base):
        super().__init__()
        self.base, self.low = base, torch.nn.Parameter(torch.randn(base.out_features, 1, generator=torch.Generator()))

    def forward(self, x):
        """Adds a term of rank 1 to the projection."""
        return self.base(x) + x.mean(-1, keepdim=True) * self.low.T


def wrapped(model):
    for layer in model.bert.encoder.layer:
        attention = layer.attention
        attention.self.query, attention.output.dense = LowRank(attention.self.query), LowRank(attention.output.dense)
        prune.random_unstructured(attention.self.key, "weight", 0.5)
        parametrizations.weight_norm(attention.self.value)
    return model


@pytest.mark.parametrize("is_before", [True, False])
def test_adapters_pruning_and_weight_norm_are_called(is_before):
    torch.manual_seed(0)
    model = wrapped(make("bert"))
    sparse = saturated(model) if is_before else wrapped(saturated(make("bert")))
    if not is_before:
        sparse.load_state_dict(model.state_dict(), strict=False)
    torch.testing.assert_close(answers(sparse, sentences()), answers(model, sentences()))


def test_a_fitted_mask_takes_an_empty_batch():
    """Only the attention is called, since whole models fail on an empty batch when they reshape it."""
    heads = torch.zeros(0, 4, 6, 8, requires_grad=True)
    found, _ = attend(saturated(make("bert")).bert.encoder.layer[0].attention.self, heads, heads, heads, None)
    found.sum().backward()
    assert found.shape == (0, 6, 4, 8) and heads.grad.shape == heads.shape
