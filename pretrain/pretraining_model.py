"""Generator and discriminator put together as a task for the training loop, and what they cost."""

import numpy as np
import tensorflow as tf

from configure_pretraining import PretrainingConfig
from model import randomness
from model.config import TransformerConfig
from model.modeling import named_variables
from pretrain import metrics
from pretrain.masking import Inputs, Masked, Specials
from pretrain.objectives import Totals, make_objective


class PretrainingModel:
    """A `util.train_step.Task`; make it inside the strategy's scope.

    Args:
      config: the hparams.
      specials: ids of [CLS], [SEP] and [MASK].
    """

    def __init__(self, config: PretrainingConfig, specials: Specials):
        self.config = config
        self.objective = make_objective(config, specials)
        self.variables: dict[str, tf.Variable] = named_variables(self.objective.layers)
        self.sum_shapes = self.objective.sum_shapes

    def prepare(self, inputs: Inputs, step: tf.Tensor) -> Masked:
        """Masks a batch with the randomness of this step and of each example's place in the global batch."""
        return self.objective.prepare(inputs, randomness.example_keys(self.config.seed, step, inputs.example))

    def totals(self, batch: Masked) -> Totals:
        """Weights of the losses, to be summed over the global batch."""
        return self.objective.totals(batch)

    def loss(self, batch: Masked, totals: Totals, training: bool) -> tuple[tf.Tensor, metrics.Sums]:
        """This part's share of the global loss, and its metric sums."""
        return self.objective.loss(batch, totals, training)

    def results(self, sums: dict[str, np.ndarray], batches: int) -> dict[str, float]:
        """Metrics by their released names."""
        return metrics.results(sums, batches)


def network_table(config: PretrainingConfig, variables: dict[str, tf.Variable]) -> tuple[list[str], list[list]]:
    """Header and rows of a table of the networks: sizes and parameters.

    The tied embeddings are counted in a row of their own, since both networks use them.
    """
    counts = {name: int(np.prod(variable.shape)) for name, variable in variables.items()}

    def parameters(*prefixes: str) -> str:
        return f"{sum(count for name, count in counts.items() if name.startswith(prefixes)):,}"

    def sizes(network: TransformerConfig) -> list:
        return [network.num_hidden_layers, network.hidden_size, network.num_attention_heads, network.intermediate_size]

    main = config.discriminator_config()
    tables = parameters("electra/embeddings/")
    embedding_size = config.embedding_size or main.hidden_size
    rows = [["embeddings", "", "", "", "", embedding_size, tables]]
    name = "discriminator" if config.electra_objective else "masked LM"
    rows.append(
        [
            name,
            *sizes(main),
            embedding_size,
            parameters("electra/encoder", "electra/embeddings_project", "discriminator_predictions"),
        ]
    )
    if config.electra_objective and not config.uniform_generator and config.untied_generator:
        generator = config.generator_config()
        own = generator.hidden_size if config.untied_generator_embeddings else embedding_size
        rows.append(["generator", *sizes(generator), own, parameters("generator/")])
    if any(key.startswith("generator_predictions") for key in counts):
        rows.append(["generator head", "", "", "", "", "", parameters("generator_predictions")])
    rows.append(["all", "", "", "", "", "", f"{sum(counts.values()):,}"])
    return ["network", "layers", "hidden", "heads", "FFN", "embedding", "parameters"], rows


def flops_per_step(config: PretrainingConfig) -> float:
    """Floating-point operations of a training step, counted as the paper does (multiply-add 2, backward = forward)."""
    main, length = config.discriminator_config(), config.max_seq_length
    embedding = config.embedding_size or main.hidden_size
    share = config.max_predictions_per_seq / length

    def encoder(network: TransformerConfig, width: int) -> float:
        return network.num_hidden_layers * block_flops(network, length) + embedding_flops(network, width, length)

    if not config.electra_objective:
        position = encoder(main, embedding) + share * softmax_flops(main, embedding)
    else:
        position = encoder(main, embedding) + discriminator_head_flops(main)
        if not config.uniform_generator:
            generator = config.generator_config()
            width = generator.hidden_size if config.untied_generator_embeddings else embedding
            position += encoder(generator, width) + share * softmax_flops(generator, width)
    return 2.0 * config.train_batch_size * length * position


def block_flops(network: TransformerConfig, length: int) -> float:
    """One Transformer block at one position of a text of `length`."""
    h, i, a, k = network.hidden_size, network.intermediate_size, network.num_attention_heads, network.hidden_size
    attention = 6 * h * k + 3 * k + 2 * k * length + 10 * length * a + 2 * h * length + 2 * h * h + 6 * h + 5
    return attention + 4 * h * i + 9 * i + 11 * h


def embedding_flops(network: TransformerConfig, embedding: int, length: int) -> float:
    """The input embedding at one position, as a dense product with the tables."""
    flops = 2 * embedding * network.vocab_size + 2 * embedding * (length + 2) + 11 * embedding
    return flops + (
        2 * network.hidden_size * embedding + network.hidden_size if embedding != network.hidden_size else 0
    )


def softmax_flops(network: TransformerConfig, embedding: int) -> float:
    """The output over the vocabulary at one predicted position."""
    v, h = network.vocab_size, network.hidden_size
    return 2 * embedding * v + 2 * embedding * h + 14 * embedding + 7 * v


def discriminator_head_flops(network: TransformerConfig) -> float:
    """The discriminator's head at one position."""
    return 2 * network.hidden_size**2 + 11 * network.hidden_size
