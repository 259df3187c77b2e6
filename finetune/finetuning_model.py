"""Encoder and heads put together as a task for the training loop."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from configure_finetuning import FinetuningConfig
from finetune.feature_spec import LENGTH
from finetune.heads import HeadOutput, TaskHeads
from finetune.task import Task
from model import randomness
from model.modeling import Encoder, Initializer, named_variables

INPUTS = {"input_ids": (LENGTH,), "input_mask": (LENGTH,), "segment_ids": (LENGTH,), "task_id": (), "example": ()}


class Batch(NamedTuple):
    """Examples of all tasks. `task_id` [B] is the number of an example's task; that of a filler is the number of tasks.

    `features` are [B, ...] by name: input_ids, input_mask, segment_ids, task_id, example (its place in the global
    batch) and those of the tasks' specs.
    """

    features: dict[str, tf.Tensor]
    keys: tf.Tensor | None  # [B] uint32 for dropout; None for none


class FinetuningModel:
    """A `util.train_step.Task`; make it inside the strategy's scope.

    Args:
      config: the hparams.
      tasks: what is learned, one head each.
    """

    def __init__(self, config: FinetuningConfig, tasks: list[Task]):
        self.config, self.tasks = config, tasks
        network = config.network()
        init = Initializer(config.seed, network.initializer_range)
        self.encoder = Encoder(
            "electra",
            network,
            config.embedding_size or network.hidden_size,
            init,
            compute_dtype=config.precision,
            recompute=config.recompute_layers,
        )
        self.heads = TaskHeads([task.make_head(network.hidden_size, init) for task in tasks], init)
        for layer in (self.encoder, self.heads):
            layer.build()
        self.variables: dict[str, tf.Variable] = named_variables([self.encoder, self.heads])
        self.sum_shapes = dict.fromkeys(("loss", "tokens", "examples"), ())

    def prepare(self, inputs: dict[str, tf.Tensor], step: tf.Tensor) -> Batch:
        """The batch with the randomness of this step and of each example's place in the global batch."""
        return Batch(inputs, randomness.example_keys(self.config.seed, step, inputs["example"]))

    def totals(self, batch: Batch) -> tf.Tensor:
        """Nothing is divided: the loss is a sum over the global batch, as released."""
        return tf.constant(1.0)

    def loss(self, batch: Batch, totals: tf.Tensor, training: bool) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """The sum of the examples' losses, and metric sums."""
        heads = self.head_outputs(batch if training else batch._replace(keys=None))
        loss = tf.add_n([tf.reduce_sum(self.mine(i, batch) * head.losses) for i, head in enumerate(heads)])
        real = tf.cast(batch.features["task_id"] < len(self.tasks), tf.float32)
        return loss, {
            "loss": tf.stop_gradient(loss),
            "tokens": tf.reduce_sum(tf.cast(batch.features["input_mask"], tf.float32) * real[:, None]),
            "examples": tf.reduce_sum(real),
        }

    def mine(self, task: int, batch: Batch) -> tf.Tensor:
        """[B] float32, 1 for the examples of a task."""
        return tf.cast(batch.features["task_id"] == task, tf.float32)

    def head_outputs(self, batch: Batch, only: int | None = None) -> list[HeadOutput]:
        """What each task's head, or that of one task alone, gives for all examples."""
        features = batch.features
        output = self.encoder(features["input_ids"], features["input_mask"], features["segment_ids"], batch.keys)
        keys = None if batch.keys is None else randomness.fold(batch.keys, randomness.salt_of("heads"))
        heads = self.heads.heads if only is None else [self.heads.heads[only]]
        return [head(output, features, keys) for head in heads]

    def results(self, sums: dict[str, np.ndarray], batches: int) -> dict[str, float]:
        """The mean loss of an example."""
        return {"loss": float(sums["loss"] / max(1.0, sums["examples"]))}


def rate_factors(names: list[str], n_layers: int, decay: float) -> dict[str, float]:
    """Layer-wise rates: decay^(n_layers + 2 - depth) for each variable (ELECTRA, appendix B; depths as released).

    Depth is 0 for the embeddings and their projection, i + 1 for layer i and n_layers + 2 for the heads, so that the
    topmost layer has decay^2. A decay of 0 or less switches them off.
    """
    if decay <= 0:
        return {}
    return {name: decay ** (n_layers + 2 - _depth(name, n_layers)) for name in names}


def is_frozen(name: str, n_layers: int, freeze_layers: int | None) -> bool:
    """Whether `freeze_layers` leaves the variable of this name as it is; None: none is."""
    return freeze_layers is not None and _depth(name, n_layers) <= freeze_layers


def _depth(name: str, n_layers: int) -> int:
    parts = name.split("/")
    if parts[0] == "task_specific":
        return n_layers + 2
    if parts[1] == "encoder":
        return int(parts[2].removeprefix("layer_")) + 1
    return 0
