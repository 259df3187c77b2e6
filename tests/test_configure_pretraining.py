"""Hparams of pre-training: the papers' presets, which value wins, and what cannot work together."""

import json

import pytest

from configure_pretraining import PRESETS, make_config, validate
from pretrain.variants import GENERATORS, OBJECTIVES, SHARINGS
from util.errors import UserError
from util.hparams import parse_hparams

# PAPERS: (layers, hidden, FFN, heads, embedding), (generator's layers, hidden, FFN, heads)
NETWORKS = {
    "small": ((12, 256, 1024, 4, 128), (12, 64, 256, 1)),
    "small_pp": ((12, 256, 1024, 4, 128), (12, 256, 1024, 4)),
    "base": ((12, 768, 3072, 12, 768), (12, 256, 1024, 4)),
    "large": ((24, 1024, 4096, 16, 1024), (24, 256, 1024, 4)),
}
# mask share, rate, batch, length, steps
SETTINGS = {
    "small": (0.15, 5e-4, 128, 128, 1_000_000),
    "small_pp": (0.15, 5e-4, 128, 512, 4_000_000),
    "base": (0.15, 2e-4, 256, 512, 766_000),
    "large": (0.25, 2e-4, 2048, 512, 400_000),
}


def config_of(hparams: dict):
    config = make_config("m", "/d", hparams)
    validate(config)
    return config


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_those_of_the_papers(name):
    config = config_of({"preset": name})
    main, generator = config.discriminator_config(), config.generator_config()
    embedding = config.embedding_size or main.hidden_size
    sizes = [
        (c.num_hidden_layers, c.hidden_size, c.intermediate_size, c.num_attention_heads) for c in (main, generator)
    ]
    assert ((*sizes[0], embedding), sizes[1]) == NETWORKS[name]
    settings = (
        config.mask_prob,
        config.learning_rate,
        config.train_batch_size,
        config.max_seq_length,
        config.num_train_steps,
    )
    assert settings == SETTINGS[name]
    assert (config.num_warmup_steps, config.lr_decay_power, config.weight_decay_rate) == (10_000, 1.0, 0.01)
    assert (config.gen_weight, config.disc_weight, config.electra_objective) == (1.0, 50.0, True)
    assert main.hidden_dropout_prob == main.attention_probs_dropout_prob == 0.1
    assert PRESETS.keys() == NETWORKS.keys()


def test_defaults_are_the_released_ones():
    config = config_of({})
    assert (config.preset, config.train_batch_size, config.max_seq_length, config.vocab_size) == (None, 128, 128, 30522)
    assert (config.embedding_size, config.max_predictions_per_seq, config.num_eval_steps) == (128, 19, 100)
    assert config.vocab_file == "/d/vocab.txt" and config.model_dir == "/d/models/m"
    assert config.pretrain_tfrecords == "/d/pretrain_tfrecords/pretrain_data.tfrecord*"
    assert config.results_txt == "/d/models/m/results/unsup_results.txt"
    assert config_of({"model_size": "base"}).embedding_size is None


def test_passed_wins_over_debug_over_preset_over_default():
    config = config_of({"preset": "base"})
    assert (config.train_batch_size, config.iterations_per_loop) == (256, 200)
    config = config_of({"preset": "base", "debug": True})
    assert (config.train_batch_size, config.num_train_steps, config.eval_batch_size) == (8, 20, 4)
    assert (config.num_eval_steps, config.iterations_per_loop, config.max_seq_length) == (2, 1, 512)
    config = config_of({"preset": "base", "debug": True, "train_batch_size": 16, "max_seq_length": 64})
    assert (config.train_batch_size, config.max_seq_length, config.learning_rate) == (16, 64, 2e-4)


def test_the_network_of_debug_wins_over_the_overrides():
    overrides = {"hidden_size": 512, "num_hidden_layers": 7, "type_vocab_size": 3, "intermediate_size": 9}
    main = config_of({"debug": True, "model_hparam_overrides": overrides}).discriminator_config()
    assert (main.num_hidden_layers, main.hidden_size, main.intermediate_size, main.num_attention_heads) == (
        *(3, 144, 576, 4),
    )
    assert main.type_vocab_size == 3


def test_generator_follows_its_hidden_size():
    config = config_of(
        {
            "model_hparam_overrides": {
                "num_attention_heads": 2,
                "intermediate_size": 77,
                "num_hidden_layers": 5,
                "hidden_dropout_prob": 0.3,
            },
            "generator_layers": 0.5,
        }
    )
    generator = config.generator_config()
    assert (generator.num_attention_heads, generator.intermediate_size) == (1, 256)
    assert (generator.num_hidden_layers, generator.hidden_dropout_prob) == (2, 0.3)  # 2.5 to even
    assert config_of({"untied_generator": False}).generator_config().hidden_size == 256
    assert config_of({"electra_objective": False}).generator_config().hidden_size == 256


def test_later_hparams_win_however_they_are_given(tmp_path):
    path = tmp_path / "h.json"
    path.write_text(json.dumps({"learning_rate": 1e-4, "seed": 3, "train_batch_size": 64}))
    passed = parse_hparams(['{"learning_rate": 1, "mask_prob": 0.2}', str(path), "seed=4", "use_xla=True"])
    config = config_of(passed)
    assert (config.learning_rate, config.mask_prob, config.seed, config.use_xla) == (1e-4, 0.2, 4, True)
    assert config.train_batch_size == 64


def test_do_eval_alone_means_no_training():
    assert config_of({"do_eval": True}).do_train is False
    assert config_of({"do_train": False, "do_eval": True}).do_eval is True


def test_ignored_hparams_of_the_released_code():
    assert config_of({"results_pkl": "x.pkl"}) == config_of({})


def test_in_force_is_json_and_makes_the_same_config():
    config = config_of({"preset": "large", "model_hparam_overrides": {"num_hidden_layers": 2}})
    values = json.loads(json.dumps(config.in_force()))
    assert values.pop("max_predictions_per_seq") == config.max_predictions_per_seq == 130
    assert config_of(values) == config


@pytest.mark.parametrize(
    ("hparams", "message"),
    [
        ({"preset": "huge"}, '"preset" must be one of small, small_pp, base, large; got "huge"'),
        ({"model_size": "tiny"}, 'model_size must be one of small, base, large; got "tiny"'),
        ({"precision": "float8"}, '"precision" must be one of'),
        ({"distribution": "horovod"}, '"distribution" must be one of'),
        ({"mask_prob": 1.0}, '"mask_prob" must be between 0 and 1'),
        ({"temperature": 0.0}, '"temperature" must be above 0'),
        ({"generator_hidden_size": -0.5}, '"generator_hidden_size" must be above 0'),
        ({"generator_hidden_size": 0.001}, r"the generator .*hidden_size must be at least 1; got 0"),
        ({"generator_layers": 0.01}, r"the generator .*num_hidden_layers must be at least 1"),
        ({"generator_layers": 1e9}, r"the generator .*num_hidden_layers must be at most 1000; got 12000000000"),
        ({"max_seq_length": 4}, '"max_seq_length" must be at least 5'),
        ({"num_eval_steps": 0}, '"num_eval_steps" must be at least 1'),
        ({"keep_checkpoint_max": -1}, '"keep_checkpoint_max" must be at least 0'),
        ({"disc_weight": float("inf")}, '"disc_weight" must be finite'),
        ({"train_batch_size": 6, "gradient_accumulation_steps": 4}, "not divisible by gradient_accumulation_steps 4"),
        ({"model_hparam_overrides": {"hidden_act": "relu"}}, 'hidden_act must be "gelu"'),
        ({"model_hparam_overrides": {"hidden_dropout_prob": 1}}, r"hidden_dropout_prob must be in \[0, 1\)"),
        ({"model_hparam_overrides": {"num_hidden_layers": True}}, '"num_hidden_layers" must be of type int'),
        ({"model_hparam_overrides": {"num_attention_heads": 0}}, "num_attention_heads must be at least 1"),
        ({"max_seq_length": 600}, "max_seq_length 600 is over the position table of 512"),
        ({"uniform_generator": True, "electra_objective": False}, "uniform_generator needs electra_objective"),
        ({"untied_generator": False, "untied_generator_embeddings": True}, "choose one"),
    ],
)
def test_values_that_cannot_be(hparams, message):
    with pytest.raises(UserError, match=message):
        config_of(hparams)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../evil"])
def test_a_model_name_is_one_folder(name):
    with pytest.raises(UserError, match="--model-name must be the name of one folder"):
        validate(make_config(name, "d", {}))


@pytest.mark.parametrize("name", ["train_batch_size", "seed", "num_train_steps"])
def test_numbers_beyond_use(name):
    with pytest.raises(UserError, match=f'"{name}" must be at most'):
        validate(make_config("m", "d", {name: 10**20}))


SAYS_THE_SAME = [  # released booleans, the new hparams, (objective, generator, weight_sharing) in force
    ({}, {"objective": "electra"}, ("electra", "small", "embeddings")),
    ({"electra_objective": False}, {"objective": "mlm"}, ("mlm", None, None)),
    ({"electra_objective": False, "electric_objective": True}, {"objective": "electric"},
     ("electric", "two_tower", "embeddings")),
    ({"uniform_generator": True}, {"generator": "uniform"}, ("electra", "uniform", None)),
    ({"two_tower_generator": True}, {"generator": "two_tower"}, ("electra", "two_tower", "embeddings")),
    ({"untied_generator": False}, {"generator": "tied"}, ("electra", "tied", "all")),
    ({"untied_generator": False}, {"weight_sharing": "all"}, ("electra", "tied", "all")),
    ({"untied_generator_embeddings": True}, {"weight_sharing": "none"}, ("electra", "small", "none")),
]  # fmt: skip


@pytest.mark.parametrize(("released", "new", "expected"), SAYS_THE_SAME)
def test_released_booleans_and_new_hparams_say_the_same(released, new, expected):
    for hparams in (released, new, {**released, **new}):
        config = config_of(hparams)
        assert (config.objective, config.generator, config.weight_sharing) == expected
        assert config == config_of(new)


BOTH_SIZES = {"generator_layers": 1.0, "generator_hidden_size": 1.0}


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("generator", [None, *GENERATORS])
@pytest.mark.parametrize("sharing", [None, *SHARINGS])
def test_what_is_in_force_makes_the_same_config(objective, generator, sharing):
    """Every combination either contradicts itself, with one message, or is stable when its hparams are passed back."""
    try:
        config = config_of({"objective": objective, "generator": generator, "weight_sharing": sharing, **BOTH_SIZES})
    except UserError as error:
        assert generator or sharing, error  # alone, every objective is one
        return
    values = config.in_force()
    values.pop("max_predictions_per_seq")
    assert config_of(values) == config
    assert config.electra_objective is (OBJECTIVES[objective] == (True, False))
    assert config.disc_weight == (1.0 if objective in ("replace_mlm", "all_tokens_mlm") else 50.0)


def test_half_of_the_steps_are_the_generators():
    config = config_of({"objective": "two_stage", "num_train_steps": 31, **BOTH_SIZES})
    assert (config.generator_steps, config.generator_config()) == (15, config.discriminator_config())
    assert (config.generator_embedding_size, config.weight_sharing) == (128, "none")


@pytest.mark.parametrize(
    ("hparams", "message"),
    [
        ({"objective": "mlm", "generator": "small"}, "has no generator"),
        ({"two_tower_generator": True, "untied_generator": False}, "two_tower_generator true contradicts"),
        ({"objective": "electric", "uniform_generator": True}, 'needs generator "two_tower"'),
        ({"generator": "uniform", "weight_sharing": "gdes"}, "needs a generator with weights"),
        ({"generator": "two_tower", "weight_sharing": "gdes"}, 'needs generator "small"; got "two_tower"'),
        ({"weight_sharing": "none", "untied_generator_embeddings": False}, "or set it to true"),
        ({"objective": "two_stage", "weight_sharing": "embeddings", **BOTH_SIZES}, "so they share nothing"),
        ({"objective": "two_stage", "generator": "uniform", **BOTH_SIZES}, 'take generator "small" instead'),
        ({"objective": "adversarial", "generator": "unigram"}, "take small or tied"),
        ({"generator_steps": 5}, 'generator_steps needs objective "two_stage"'),
        ({"masking_unit": "span", "released_quirks": True}, "contradicts released_quirks"),
        ({"objective": "replace_mlm", "init_generator_checkpoint": "x", "generator": "tied"}, "weights of its own"),
    ],
)
def test_variants_that_cannot_be(hparams, message):
    with pytest.raises(UserError, match=message):
        config_of(hparams)
