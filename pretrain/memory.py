"""Peak memory of a device while training, estimated without TensorFlow.

Counted is what the graph of `model.modeling` and `pretrain.objectives` keeps for its backward pass, tensor by tensor,
as traces of the executor show it. The peak is the highest of three moments:

    the generator's loss     the generator's pass is kept, and the logits over the vocabulary with it
    the main network's loss  the main network's pass is kept; the generator's backward pass, which does not wait for
                             it, has gone on at its side as far as it came
    the update               all gradients are there, those of a table once for each of its uses

Letters: B examples at a time on a device, L length, D hidden, I FFN, E embedding, V vocabulary, H heads.
"""

from typing import NamedTuple

from configure_pretraining import LARGEST, PretrainingConfig
from model.config import TransformerConfig
from model.memory import GRAPH_OF_A_BLOCK, PIECES, WIDE, Memory, number_size, of_encoder
from pretrain.parameter_counts import parameter_counts
from pretrain.variants import TOKEN_OBJECTIVES, WITHOUT_WEIGHTS


class _Pass(NamedTuple):
    """What one network keeps of one pass."""

    kept: float = 0.0  # all but what belongs to logits over the vocabulary
    vocabulary: float = 0.0


def estimated(config: PretrainingConfig, replicas: int, on_cpu: bool = False) -> Memory:
    """The peak on each of `replicas` devices; `on_cpu`: they are a CPU's."""
    counts = parameter_counts(config)
    weights, slots = _weights_and_slots(config, counts)
    accumulated = weights if config.gradient_accumulation_steps > 1 else 0
    generators = WIDE * sum(count for name, count in counts.items() if name.startswith(("generator", "cloze")))
    generator, main = _passes(config, -(-config.train_batch_size // (replicas * config.gradient_accumulation_steps)))
    table = WIDE * config.vocab_size * config.main_embedding_size
    early, late = _table_uses(config)

    left = max(0.0, 1.0 - main.kept / (2 * generator.kept)) if generator.kept else 0.0
    several = weights if replicas > 1 else 0  # the sums over the devices beside the parts
    moments = [  # gradients, activations
        (0.0, generator.kept + generator.vocabulary),
        (generators + early * table, main.kept + main.vocabulary + left * (generator.kept + generator.vocabulary)),
        (weights + max(several, (early + late) * table if early + late > 1 else 0), 0.0),
    ]
    gradients, activations = max(moments, key=sum)
    inputs = 3 * WIDE * -(-config.train_batch_size // replicas) * config.max_seq_length  # ids, mask, segments
    graph = GRAPH_OF_A_BLOCK * _blocks(config) if on_cpu else 0.0
    return Memory(
        weights + _cast_copies(config, counts),
        slots,
        accumulated + PIECES * gradients,
        PIECES * activations + inputs,
        graph,
    )


def logits_fault(config: PretrainingConfig, replicas: int) -> str | None:
    """What is wrong where a device's logits over the vocabulary are more numbers than TensorFlow's kernels count."""
    whole = config.objective == "all_tokens_mlm" or config.generator == "two_tower"
    places = config.max_seq_length if whole else config.max_predictions_per_seq
    sizes = {"train_batch_size": config.gradient_accumulation_steps} if config.do_train else {}
    if config.do_eval or config.eval_every_steps:
        sizes["eval_batch_size"] = 1
    for name, pieces in sizes.items():
        batch = -(-getattr(config, name) // (replicas * pieces))
        if (count := batch * places * config.vocab_size) > LARGEST:
            return (
                f"{name} {getattr(config, name)} makes {count} logits on a device at a time ({batch} examples x "
                f"{places} places x {config.vocab_size} pieces), and TensorFlow counts to {LARGEST}; lower {name} or "
                f"vocab_size{', or raise gradient_accumulation_steps' if name == 'train_batch_size' else ''}"
            )
    return None


def checkpoint_size(config: PretrainingConfig) -> float:
    """Bytes of a checkpoint: weights and slots."""
    return sum(_weights_and_slots(config, parameter_counts(config)))


def _weights_and_slots(config: PretrainingConfig, counts: dict[str, int]) -> tuple[float, float]:
    parameters = sum(counts.values())
    return WIDE * parameters, 2 * (2 if config.bfloat16_slots else WIDE) * parameters


def _passes(config: PretrainingConfig, batch: int) -> tuple[_Pass, _Pass]:
    """Of the generator and of the main network, `batch` examples at a time."""
    network, width = config.discriminator_config(), config.main_embedding_size
    masked, everywhere = batch * config.max_predictions_per_seq, batch * config.max_seq_length
    encoder = of_encoder(config, network, width, batch)
    if config.objective == "mlm":
        return _Pass(), _Pass(encoder + _head(config, network, width, masked), _logits(config, masked))
    if config.objective == "all_tokens_mlm":
        main = _Pass(encoder + _head(config, network, width, everywhere), _logits(config, everywhere))
    elif config.objective in TOKEN_OBJECTIVES:
        main = _Pass(encoder + _head(config, network, width, masked), _logits(config, masked))
    else:
        main = _Pass(encoder + 4 * everywhere * network.hidden_size * number_size(config))
    if config.weight_sharing == "gdes":
        main = main._replace(kept=main.kept + WIDE * config.vocab_size * width)  # the sum of table and difference
    return _generator_pass(config, batch), main


def _generator_pass(config: PretrainingConfig, batch: int) -> _Pass:
    masked, everywhere = batch * config.max_predictions_per_seq, batch * config.max_seq_length
    sampling = 2 * masked * config.vocab_size * WIDE  # probabilities, and once more in blocks
    if config.generator in WITHOUT_WEIGHTS:
        return _Pass(0.0, _logits(config, masked) + sampling)
    network, width = config.generator_config(), config.generator_embedding_size
    encoder = of_encoder(config, network, width, batch)
    if config.generator == "two_tower":
        head = _head(config, network, width, everywhere, states=2)
        return _Pass(2 * encoder + head, _logits(config, everywhere) + sampling)
    return _Pass(encoder + _head(config, network, width, masked), _logits(config, masked) + sampling)


def _head(config: PretrainingConfig, network: TransformerConfig, width: int, rows: int, states: int = 1) -> float:
    """A masked language model's head at `rows` positions, without its logits."""
    compute = number_size(config)
    return rows * (states * network.hidden_size * compute + width * (4 * compute + 2 * WIDE + compute))


def _logits(config: PretrainingConfig, rows: int) -> float:
    """Logits at `rows` positions, their gradient, and what is computed from them at the moment."""
    return 3 * rows * config.vocab_size * WIDE


def _blocks(config: PretrainingConfig) -> int:
    """Transformer blocks in the graph of a step."""
    generator = {"small": 1, "tied": 1, "two_tower": 2}.get(config.generator, 0)
    main = config.discriminator_config().num_hidden_layers
    return main + (generator * config.generator_config().num_hidden_layers if generator else 0)


def _cast_copies(config: PretrainingConfig, counts: dict[str, int]) -> float:
    """Copies of the weights in the compute dtype, of all but the embedding layers."""
    if number_size(config) == WIDE:
        return 0.0
    return number_size(config) * sum(count for name, count in counts.items() if "/embeddings/" not in name)


def _table_uses(config: PretrainingConfig) -> tuple[int, int]:
    """How often the generator, and the main network, use the main token table: each use has a gradient of its size."""
    main = 2 if config.objective in (*TOKEN_OBJECTIVES, "mlm") else 1
    shares = config.weight_sharing in ("embeddings", "all", "gdes")
    passes = {"small": 1, "tied": 1, "two_tower": 2}.get(config.generator, 0)
    return (passes + 1 if shares and passes else 0), main
