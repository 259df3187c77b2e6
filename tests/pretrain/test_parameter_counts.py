"""Parameters counted without TensorFlow are those of the networks that are built."""

import numpy as np
import pytest

from pretrain.parameter_counts import network_table, variable_shapes
from tests.objectives import VARIANTS, config_of, model_of

WIDTHS = {
    "no projection": {"embedding_size": 16, "generator_hidden_size": 1.0},
    "more layers and positions": {"generator_layers": 0.5, "model_hparam_overrides": {
        "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 40,
        "max_position_embeddings": 20, "type_vocab_size": 3}},
}  # fmt: skip


@pytest.mark.parametrize("hparams", [*VARIANTS.values(), *WIDTHS.values()], ids=[*VARIANTS, *WIDTHS])
def test_the_variables_of_every_variant(hparams):
    """The same names and shapes; the rows of the table add up to all parameters."""
    variables = model_of(hparams).variables
    assert variable_shapes(config_of(hparams)) == {n: tuple(v.shape) for n, v in variables.items()}
    *parts, whole = [int(row[-1].replace(",", "")) for row in network_table(config_of(hparams))[1]]
    assert sum(parts) == whole == sum(int(np.prod(v.shape)) for v in variables.values())
