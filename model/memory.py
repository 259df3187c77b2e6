"""Memory of training a Transformer, by estimate and without TensorFlow: what pre-training and fine-tuning share."""

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from model.config import TransformerConfig
from util.errors import UserError
from util.log import say

if TYPE_CHECKING:
    from util.distribution import Devices

WIDE = 4  # bytes of float32: weights, gradients, softmax, layer norm statistics
# Tensors that come and go take more than their own size. Chosen with the runs of docs/planning.md in view, which differ
# by a third among themselves.
PIECES = 1.1
# The traced graph of a Transformer block with its backward pass, in its several copies and the executor's tables: host
# memory, which a CPU shares with the tensors. Fitted: what a plain run of base, 24 blocks with the generator's, takes
# beyond all else that is counted.
GRAPH_OF_A_BLOCK = 80e6
IMPOSSIBLE = 2.0  # times a device's memory: no error of the estimate is as large


class Settings(Protocol):
    """The hparams of pre-training or fine-tuning that the encoder's memory goes by."""

    max_seq_length: int
    precision: str
    recompute_layers: bool


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


Estimate = Callable[[Any, int, bool], Memory]  # of the hparams, the number of devices, and whether they are a CPU's


def size_text(size: float) -> str:
    """Bytes as people read them: 85 MB, 3.4 GB, 12 TB."""
    for unit, bytes_of_it in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9)):
        if size >= bytes_of_it:
            return f"{size / bytes_of_it:.3g} {unit}"
    return f"{size / 1e6:.3g} MB"


def check_memory(config: Any, estimated: Estimate, devices: "Devices", **more: list) -> None:
    """Says how much memory a step takes by estimate: a warning where less is free, an error where it is absurd.

    Args:
      config: the hparams in force.
      estimated: what gives the estimate of a config.
      devices: of the run.
      more: values of hparams that may lower it, beside those that `what_lowers` tries.

    Raises:
      UserError: it is more than twice all the memory that a device has.
    """
    memory = estimated(config, devices.replicas, devices.on_cpu)
    free, whole = devices.free_memory(), devices.whole_memory()
    say(f"memory, by estimate: {memory.text()}")
    if free is None or memory.total <= free:
        return
    lower = what_lowers_text(config, estimated, devices.replicas, free, devices.on_cpu, **more)
    if memory.total > IMPOSSIBLE * whole:
        raise UserError(
            f"a step takes {size_text(memory.total)} of memory a device by estimate, and there are {size_text(whole)} "
            f"at most; {lower}"
        )
    say(f"warning: that is more than the {size_text(free)} that are free for it; {lower}")


def what_lowers(
    config: Any, estimated: Estimate, replicas: int, free: float, on_cpu: bool = False, **more: list
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
        **more,
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


def what_lowers_text(*arguments: Any, **more: list) -> str:
    """The same as the end of a message: what lowers it, and to how much."""
    found = [f"{change} to {size_text(memory.total)}" for change, memory in what_lowers(*arguments, **more)]
    return "what lowers it: " + ", ".join([*found, "a smaller network"])


def _divisors(number: int) -> list[int]:
    low = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({*low, *(number // n for n in low)})


def of_encoder(config: Settings, network: TransformerConfig, width: int, batch: int, frozen: int = 0) -> float:
    """What an encoder keeps of its pass for the backward pass.

    Args:
      config: max_seq_length, precision and recompute_layers are read.
      network: its sizes.
      width: E, of the embeddings.
      batch: B, examples at a time.
      frozen: blocks at the bottom that no gradient reaches, nor the embeddings below them.
    """
    compute, rows = number_size(config), batch * config.max_seq_length
    drops = network.hidden_dropout_prob > 0
    kept = rows * width * (2 * WIDE + compute + (WIDE if drops else 0))  # layer norm's two, output, dropout mask
    kept += rows * network.hidden_size * compute if width != network.hidden_size else 0
    kept = 0.0 if frozen else kept
    block, layers = _block(config, network, batch), network.num_hidden_layers - frozen
    if config.recompute_layers:
        return kept + layers * rows * network.hidden_size * compute + block
    return kept + layers * block


def _block(config: Settings, network: TransformerConfig, batch: int) -> float:
    """What a block keeps of its pass."""
    compute, length = number_size(config), config.max_seq_length
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


def number_size(config: Settings) -> int:
    """Bytes of a number in the compute dtype."""
    return WIDE if config.precision == "float32" else 2
