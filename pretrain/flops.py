"""Training FLOPs, counted as the papers do (ELECTRA, section 3.1 and table 1): needs no TensorFlow.

A multiply-add counts 2, dropout 4, layer norm 5, activation 8 and softmax 5 an element; the backward pass costs as
much as the forward pass; the input embedding is a dense product; masked positions are the share `MASKED_SHARE` of
all, whatever mask_prob is. What the papers do not define follows the same rules: see `position_flops`.
"""

from typing import NamedTuple

from configure_pretraining import PretrainingConfig
from model.config import TransformerConfig

MASKED_SHARE = 0.15625  # 20 of 128


class Cost(NamedTuple):
    """FLOPs of one position in a forward pass."""

    trained: float  # of what has a backward pass too
    frozen: float = 0.0  # of what has none


def training_flops(config: PretrainingConfig, steps: int) -> float:
    """FLOPs of the first `steps` steps; those of a frozen generator are counted without a backward pass."""
    positions = float(config.train_batch_size) * config.max_seq_length
    total = 0.0
    for first, end, cost in _stages(config):
        here = max(0, min(steps, end) - first) if end else max(0, steps - first)
        total += here * positions * (2.0 * cost.trained + cost.frozen)
    return total


def steps_for_flops(config: PretrainingConfig, flops: float) -> int:
    """The most steps that cost at most `flops`; generator_steps of two_stage stays as it is."""
    steps = 0
    for first, end, _ in _stages(config):
        each = training_flops(config, first + 1) - training_flops(config, first)
        steps = first + int((flops - training_flops(config, first)) / each * (1 + 1e-12))
        if end and steps <= end or not end:
            break
    return max(0, steps)


def _stages(config: PretrainingConfig) -> list[tuple[int, int | None, Cost]]:
    """(first step, step after the last or None, cost) of each stage."""
    if config.objective != "two_stage":
        return [(0, None, position_flops(config))]
    alone, main = generator_flops(config), main_flops(config)
    border = config.generator_steps
    return [(0, border, Cost(alone)), (border, None, Cost(main, frozen=alone))]


def position_flops(config: PretrainingConfig) -> Cost:
    """One position of one example, where there is one stage.

    Beyond the papers: two towers are two encoders and a softmax over both states at every position; the copy gate
    and the baseline are a product with one vector and a sigmoid.
    """
    return Cost(main_flops(config) + generator_flops(config))


def main_flops(config: PretrainingConfig) -> float:
    """The main network with its head."""
    main, width = config.discriminator_config(), config.main_embedding_size
    heads = {
        "mlm": MASKED_SHARE * softmax_flops(main, width),
        "replace_mlm": MASKED_SHARE * softmax_flops(main, width),
        "all_tokens_mlm": softmax_flops(main, width) + gate_flops(main),
    }
    head = heads.get(config.objective, discriminator_head_flops(main))
    return encoder_flops(main, width, config.max_seq_length) + head


def generator_flops(config: PretrainingConfig) -> float:
    """The generator with its output; 0 where it has no weights."""
    if config.generator not in ("small", "tied", "two_tower"):
        return 0.0
    network, width, length = config.generator_config(), config.generator_embedding_size, config.max_seq_length
    encoder = encoder_flops(network, width, length)
    if config.generator == "two_tower":
        return 2 * encoder + softmax_flops(network, width, states=2)
    baseline = gate_flops(network) if config.objective == "adversarial" else 0.0
    return encoder + MASKED_SHARE * (softmax_flops(network, width) + baseline)


def encoder_flops(network: TransformerConfig, embedding: int, length: int) -> float:
    """Input embedding and all blocks."""
    return network.num_hidden_layers * block_flops(network, length) + embedding_flops(network, embedding, length)


def block_flops(network: TransformerConfig, length: int) -> float:
    """One Transformer block at one position of a text of `length`."""
    h, i, a, k = network.hidden_size, network.intermediate_size, network.num_attention_heads, network.hidden_size
    attention = 6 * h * k + 3 * k + 2 * k * length + 10 * length * a + 2 * h * length + 2 * h * h + 6 * h + 5
    return attention + 4 * h * i + 9 * i + 11 * h


def embedding_flops(network: TransformerConfig, embedding: int, length: int) -> float:
    """The input embedding, as a dense product with the tables."""
    h = network.hidden_size
    projection = 2 * h * embedding + h if embedding != h else 0
    return 2 * embedding * network.vocab_size + 2 * embedding * (length + 2) + 11 * embedding + projection


def softmax_flops(network: TransformerConfig, embedding: int, states: int = 1) -> float:
    """The output over the vocabulary at one predicted position, from `states` hidden states."""
    v, h = network.vocab_size, states * network.hidden_size
    return 2 * embedding * v + 2 * embedding * h + 14 * embedding + 7 * v


def discriminator_head_flops(network: TransformerConfig) -> float:
    """The discriminator's head at one position."""
    return 2 * network.hidden_size**2 + 11 * network.hidden_size


def gate_flops(network: TransformerConfig) -> float:
    """One sigmoid of the hidden state."""
    return 2 * network.hidden_size + 9
