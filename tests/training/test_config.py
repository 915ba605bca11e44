import pytest

from sbmt import SbmtError
from sbmt.training import SIZES, RepeatedTokensConfig

pytestmark = pytest.mark.bad_input


def test_config_survives_its_dictionary():
    config = RepeatedTokensConfig(steps=7, sampler="fastrg", exploration=0.0)
    assert RepeatedTokensConfig.from_dict(config.to_dict()) == config


def test_paper_size_is_the_synthetic_column_of_table_7():
    paper = SIZES["paper"]
    assert (paper.length, paper.batch_size, paper.steps, paper.learning_rate) == (256, 256, 2000, 1e-3)
    assert (paper.n_layers, paper.n_heads, paper.d_model, paper.d_hidden, paper.n_clusters) == (1, 1, 32, 32, 128)


def test_override_ignores_none_and_keeps_zero():
    config = RepeatedTokensConfig(exploration=0.01).override(exploration=0.0, steps=None)
    assert config.exploration == 0.0
    assert config.steps == RepeatedTokensConfig().steps


def test_attention_arguments_override_the_preset_only_where_given():
    arguments = RepeatedTokensConfig(preset="faithful", exploration=0.0).attention_arguments()
    assert arguments == {"preset": "faithful", "n_clusters": 128, "exploration": 0.0}
    assert RepeatedTokensConfig(attention="full").attention_arguments() == {}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"steps": 0}, "steps ≥ 1"),
        ({"length": 2.5}, "length ≥ 1"),
        ({"learning_rate": float("nan")}, "learning_rate > 0"),
        ({"embedding_std": 0.0}, "embedding_std > 0"),
        ({"density_weight": -1.0}, "density_weight ≥ 0"),
        ({"seed": -1}, "seed in"),
    ],
)
def test_values_out_of_range_are_refused(values, words):
    with pytest.raises(SbmtError, match=words):
        RepeatedTokensConfig(**values)


@pytest.mark.parametrize("values", [{"stepz": 3}, ["steps"], {"steps": "many"}, {"learning_rate": "fast"}])
def test_damaged_dictionaries_are_refused(values):
    with pytest.raises(SbmtError):
        RepeatedTokensConfig.from_dict(values)
