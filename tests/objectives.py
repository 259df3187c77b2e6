"""What tests of the objectives share: tiny networks, a batch, losses and gradients."""

import numpy as np
import tensorflow as tf

from configure_pretraining import PretrainingConfig, make_config, validate
from model import randomness
from pretrain.masking import Inputs, Masked, Specials
from pretrain.pretraining_model import PretrainingModel

VOCAB, LENGTH, BATCH = 60, 16, 4
SPECIALS = Specials(2, 3, 4, np.arange(VOCAB) >= 50)  # the last ten pieces go on with a word
SIZES = {
    "vocab_size": VOCAB,
    "embedding_size": 6,
    "max_seq_length": LENGTH,
    "mask_prob": 0.25,
    "generator_hidden_size": 0.5,
    "disc_weight": 3.0,
    "gen_weight": 2.0,
    "model_hparam_overrides": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2},
}
SAME_SIZE = {"generator_hidden_size": 1, "generator_layers": 1}
VARIANTS = {
    "electra": {},
    "mlm": {"objective": "mlm"},
    "electric": {"objective": "electric"},
    "electric, own tables": {"objective": "electric", "weight_sharing": "none"},
    "masked only": {"objective": "electra_masked_only"},
    "replace": {"objective": "replace_mlm"},
    "all tokens": {"objective": "all_tokens_mlm"},
    "two stages": {"objective": "two_stage", "num_train_steps": 8, **SAME_SIZE},
    "adversarial": {"objective": "adversarial"},
    "tied": {"generator": "tied"},
    "uniform": {"generator": "uniform"},
    "unigram": {"generator": "unigram"},
    "towers": {"generator": "two_tower"},
    "own tables": {"weight_sharing": "none"},
    "gdes": {"weight_sharing": "gdes"},
}


def config_of(*hparams: dict) -> PretrainingConfig:
    """A checked config of tiny networks."""
    config = make_config("m", "d", {k: v for values in (SIZES, *hparams) for k, v in values.items()})
    validate(config)
    return config


def model_of(*hparams: dict) -> PretrainingModel:
    """Tiny networks with weights far from their start, so that no gradient is small by chance."""
    model = PretrainingModel(config_of(*hparams), SPECIALS, np.arange(VOCAB))
    draws = np.random.RandomState(1)
    for variable in model.variables.values():
        variable.assign_add(0.3 * draws.normal(size=variable.shape).astype(np.float32))
    return model


def inputs(seed: int = 0) -> Inputs:
    """Texts of random pieces, the last ones shorter."""
    draws = np.random.RandomState(seed)
    ids = draws.randint(5, VOCAB, [BATCH, LENGTH])
    real = np.arange(LENGTH) < np.array([[LENGTH], [LENGTH], [9], [6]])
    ids[:, 0] = SPECIALS.cls
    ids[np.arange(BATCH), real.sum(1) - 1] = SPECIALS.sep
    ids, real = (tf.constant(values * real, tf.int32) for values in (ids, np.ones_like(ids)))
    return Inputs(ids, real, tf.zeros_like(ids), tf.range(BATCH))


def batch_of(model: PretrainingModel, step: int = 0) -> Masked:
    """A masked batch."""
    return model.prepare(inputs(), tf.constant(step))


def keys(count: int, step: int = 0) -> tf.Tensor:
    """Keys of examples."""
    return randomness.example_keys(7, tf.constant(step), tf.range(count))


def gradients(model: PretrainingModel, loss) -> dict[str, np.ndarray]:
    """The gradient of a function's value for every variable; 0 where none flows."""
    with tf.GradientTape() as tape:
        value = loss()
    found = tape.gradient(value, list(model.variables.values()), unconnected_gradients="zero")
    return {name: tf.convert_to_tensor(value).numpy() for name, value in zip(model.variables, found, strict=True)}


def moved(found: dict[str, np.ndarray]) -> set[str]:
    """The variables with a gradient; the bias of the keys has none but rounding errors."""
    return {name for name, value in found.items() if np.abs(value).max() > 1e-6}
