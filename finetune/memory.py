"""Peak memory of a device while fine-tuning, estimated before the networks are built.

Counted are the encoder and its training at max_seq_length; heads are small beside it. Shorter batches take less.
"""

from math import prod

from configure_finetuning import FinetuningConfig
from finetune.finetuning_model import is_frozen
from model.memory import GRAPH_OF_A_BLOCK, PIECES, WIDE, Memory, number_size, of_encoder
from model.shapes import embeddings, encoder


def estimated(config: FinetuningConfig, replicas: int, on_cpu: bool = False) -> Memory:
    """The peak on each of `replicas` devices; `on_cpu`: they are a CPU's.

    Either all that the forward pass leaves for the backward pass is there, or all gradients are.
    """
    network, layers = config.network(), config.network().num_hidden_layers
    width = config.embedding_size or network.hidden_size
    shapes = embeddings("electra", network, width) | encoder("electra", network, width)
    counts = {name: prod(shape) for name, shape in shapes.items()}
    moving = sum(count for name, count in counts.items() if not is_frozen(name, layers, config.freeze_layers))
    cast = 0.0 if number_size(config) == WIDE else number_size(config) * sum(counts.values())

    share = -(-config.train_batch_size // replicas)
    batch = -(-share // config.gradient_accumulation_steps)
    frozen = 0 if config.freeze_layers is None else min(config.freeze_layers, layers)
    activations = of_encoder(config, network, width, batch, frozen)
    gradients = WIDE * moving * (2 if replicas > 1 else 1)  # the sums over the devices beside the parts
    gradients, activations = max([(0.0, activations), (gradients, 0.0)], key=sum)
    accumulated = WIDE * moving if config.gradient_accumulation_steps > 1 else 0.0
    return Memory(
        WIDE * sum(counts.values()) + cast,
        2 * (2 if config.bfloat16_slots else WIDE) * moving,
        accumulated + PIECES * gradients,
        PIECES * activations + 3 * WIDE * share * config.max_seq_length,
        GRAPH_OF_A_BLOCK * layers if on_cpu else 0.0,
    )


def further_freezing(config: FinetuningConfig) -> list[int]:
    """Values of freeze_layers that leave more as it is."""
    now = -1 if config.freeze_layers is None else config.freeze_layers
    return list(range(now + 1, config.network().num_hidden_layers + 1))
