"""Peak memory of a device while training, estimated without TensorFlow.

Counted is what the graph of `model.modeling` and `pretrain.objectives` keeps for its backward pass, tensor by tensor,
as traces of the executor show it. The peak is the highest of three moments:

    the generator's loss     the generator's pass is kept, and the logits over the vocabulary with it
    the main network's loss  the main network's pass is kept; the generator's backward pass, which does not wait for
                             it, has gone on at its side as far as it came
    the update               all gradients are there, those of a table once for each of its uses

Letters: B examples at a time on a device, L length, D hidden, I FFN, E embedding, V vocabulary, H heads.
"""

import dataclasses
import math
from typing import NamedTuple

from configure_pretraining import LARGEST, PretrainingConfig
from model.config import TransformerConfig
from pretrain.parameter_counts import parameter_counts
from pretrain.variants import TOKEN_OBJECTIVES, WITHOUT_WEIGHTS

WIDE = 4  # bytes of float32: weights, gradients, softmax, layer norm statistics
# Tensors that come and go take more than their own size. Chosen with the runs of docs/planning.md in view, which differ
# by a third among themselves.
PIECES = 1.1
# The traced graph of a Transformer block with its backward pass, in its several copies and the executor's tables: host
# memory, which a CPU shares with the tensors. Fitted: what a plain run of base, 24 blocks with the generator's, takes
# beyond all else that is counted.
GRAPH_OF_A_BLOCK = 80e6


class Memory(NamedTuple):
    """Bytes on a device at the peak of a step."""

    weights: float  # with their copies in the compute dtype
    slots: float  # the optimizer's two moments
    gradients: float
    activations: float  # what the forward pass leaves for the backward pass
    graph: float = 0.0  # on a CPU alone

    @property
    def total(self) -> float:
        """All of them."""
        return sum(self)

    def text(self) -> str:
        """ "3.4 GB a device (weights 0.4, slots 0.9, ...)"."""
        parts = ", ".join(f"{name} {value / 1e9:.1f}" for name, value in self._asdict().items() if value)
        return f"{size_text(self.total)} a device ({parts})"


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
    for name, pieces in {"train_batch_size": config.gradient_accumulation_steps, "eval_batch_size": 1}.items():
        batch = -(-getattr(config, name) // (replicas * pieces))
        if (count := batch * places * config.vocab_size) > LARGEST:
            change = f"lower {name} or vocab_size" + (", or raise gradient_accumulation_steps" if name == "train_batch_size" else "")
            return (
                f"{name} {getattr(config, name)} makes {count} logits on a device at a time ({batch} examples x {places} "
                f"places x {config.vocab_size} pieces), and TensorFlow counts to {LARGEST}; {change}"
            )
    return None


def checkpoint_size(config: PretrainingConfig) -> float:
    """Bytes of a checkpoint: weights and slots."""
    return sum(_weights_and_slots(config, parameter_counts(config)))


def size_text(size: float) -> str:
    """Bytes as people read them: 85 MB, 3.4 GB, 12 TB."""
    for unit, bytes_of_it in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9)):
        if size >= bytes_of_it:
            return f"{size / bytes_of_it:.3g} {unit}"
    return f"{size / 1e6:.3g} MB"


def what_lowers(
    config: PretrainingConfig, replicas: int, free: float, on_cpu: bool = False
) -> list[tuple[str, Memory]]:
    """Hparams that lower the peak, each with the peak that it alone leads to; what changes no result comes first.

    Of numbers the mildest that brings the peak down to `free` bytes, else the one that goes furthest.
    """
    pieces, share = config.gradient_accumulation_steps, config.train_batch_size // replicas
    halves = [share // pieces >> times for times in range(1, (share // pieces).bit_length())]
    values = {
        "gradient_accumulation_steps": [n for n in _divisors(share) if n > pieces],
        "recompute_layers": [True],
        "train_batch_size": [replicas * pieces * half for half in halves],
        "precision": ["bfloat16"],
        "bfloat16_slots": [True],
    }
    now, found = estimated(config, replicas, on_cpu).total, []
    for name, choices in values.items():
        best: tuple[str, Memory] | None = None
        for value in choices:
            memory = estimated(dataclasses.replace(config, **{name: value}), replicas, on_cpu)
            if memory.total < 0.98 * now and (best is None or memory.total < best[1].total):
                best = (f"{name}={str(value).lower()}", memory)
            if memory.total <= free:
                break
        found += [best] if best else []
    return found


def what_lowers_text(config: PretrainingConfig, replicas: int, free: float, on_cpu: bool = False) -> str:
    """The same as the end of a message: what lowers it, and to how much."""
    found = [f"{change} to {size_text(memory.total)}" for change, memory in what_lowers(config, replicas, free, on_cpu)]
    return "what lowers it: " + ", ".join([*found, "a smaller network"])


def _divisors(number: int) -> list[int]:
    low = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({*low, *(number // n for n in low)})


def _weights_and_slots(config: PretrainingConfig, counts: dict[str, int]) -> tuple[float, float]:
    parameters = sum(counts.values())
    return WIDE * parameters, 2 * (2 if config.bfloat16_slots else WIDE) * parameters


def _passes(config: PretrainingConfig, batch: int) -> tuple[_Pass, _Pass]:
    """Of the generator and of the main network, `batch` examples at a time."""
    network, width = config.discriminator_config(), config.main_embedding_size
    masked, everywhere = batch * config.max_predictions_per_seq, batch * config.max_seq_length
    encoder = _encoder(config, network, width, batch)
    if config.objective == "mlm":
        return _Pass(), _Pass(encoder + _head(config, network, width, masked), _logits(config, masked))
    if config.objective == "all_tokens_mlm":
        main = _Pass(encoder + _head(config, network, width, everywhere), _logits(config, everywhere))
    elif config.objective in TOKEN_OBJECTIVES:
        main = _Pass(encoder + _head(config, network, width, masked), _logits(config, masked))
    else:
        main = _Pass(encoder + 4 * everywhere * network.hidden_size * _bytes(config))
    if config.weight_sharing == "gdes":
        main = main._replace(kept=main.kept + WIDE * config.vocab_size * width)  # the sum of table and difference
    return _generator_pass(config, batch), main


def _generator_pass(config: PretrainingConfig, batch: int) -> _Pass:
    masked, everywhere = batch * config.max_predictions_per_seq, batch * config.max_seq_length
    sampling = 2 * masked * config.vocab_size * WIDE  # probabilities, and once more in blocks
    if config.generator in WITHOUT_WEIGHTS:
        return _Pass(0.0, _logits(config, masked) + sampling)
    network, width = config.generator_config(), config.generator_embedding_size
    encoder = _encoder(config, network, width, batch)
    if config.generator == "two_tower":
        head = _head(config, network, width, everywhere, states=2)
        return _Pass(2 * encoder + head, _logits(config, everywhere) + sampling)
    return _Pass(encoder + _head(config, network, width, masked), _logits(config, masked) + sampling)


def _encoder(config: PretrainingConfig, network: TransformerConfig, width: int, batch: int) -> float:
    """What an encoder keeps."""
    compute, rows = _bytes(config), batch * config.max_seq_length
    drops = network.hidden_dropout_prob > 0
    kept = rows * width * (2 * WIDE + compute + (WIDE if drops else 0))  # layer norm's two, output, dropout mask
    kept += rows * network.hidden_size * compute if width != network.hidden_size else 0
    block, layers = _block(config, network, batch), network.num_hidden_layers
    if config.recompute_layers:
        return kept + layers * rows * network.hidden_size * compute + block
    return kept + layers * block


def _block(config: PretrainingConfig, network: TransformerConfig, batch: int) -> float:
    """What a block keeps of its pass."""
    compute, length = _bytes(config), config.max_seq_length
    hidden = batch * length * network.hidden_size  # [B, L, D]
    inner = batch * length * network.intermediate_size  # [B, L, I]
    square = batch * network.num_attention_heads * length * length  # [B, H, L, L]
    # queries, keys, values, context; of each layer norm the centred input, the scale and the output
    kept = hidden * (4 * compute + 2 * (2 * WIDE + compute))
    kept += inner * 4 * compute  # of gelu: half its input, the square, the distribution function, the output
    kept += square * WIDE  # probabilities
    if network.hidden_dropout_prob > 0:
        kept += hidden * 2 * compute  # masks
    if network.attention_probs_dropout_prob > 0:
        kept += square * 2 * compute  # what is left of the probabilities, masks
    elif compute != WIDE:
        kept += square * compute
    return kept


def _head(config: PretrainingConfig, network: TransformerConfig, width: int, rows: int, states: int = 1) -> float:
    """A masked language model's head at `rows` positions, without its logits."""
    compute = _bytes(config)
    return rows * (states * network.hidden_size * compute + width * (4 * compute + 2 * WIDE + compute))


def _logits(config: PretrainingConfig, rows: int) -> float:
    """Logits at `rows` positions, their gradient, and what is computed from them at the moment."""
    return 3 * rows * config.vocab_size * WIDE


def _bytes(config: PretrainingConfig) -> int:
    """Of a number in the compute dtype."""
    return WIDE if config.precision == "float32" else 2


def _blocks(config: PretrainingConfig) -> int:
    """Transformer blocks in the graph of a step."""
    generator = {"small": 1, "tied": 1, "two_tower": 2}.get(config.generator, 0)
    main = config.discriminator_config().num_hidden_layers
    return main + (generator * config.generator_config().num_hidden_layers if generator else 0)


def _cast_copies(config: PretrainingConfig, counts: dict[str, int]) -> float:
    """Copies of the weights in the compute dtype, of all but the embedding layers."""
    if _bytes(config) == WIDE:
        return 0.0
    return _bytes(config) * sum(count for name, count in counts.items() if "/embeddings/" not in name)


def _table_uses(config: PretrainingConfig) -> tuple[int, int]:
    """How often the generator, and the main network, use the main token table: each use has a gradient of its size."""
    main = 2 if config.objective in (*TOKEN_OBJECTIVES, "mlm") else 1
    shares = config.weight_sharing in ("embeddings", "all", "gdes")
    passes = {"small": 1, "tied": 1, "two_tower": 2}.get(config.generator, 0)
    return (passes + 1 if shares and passes else 0), main
