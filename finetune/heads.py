"""What the heads of all tasks share."""

from typing import NamedTuple

import tensorflow as tf

from model.modeling import NamedLayer


class HeadOutput(NamedTuple):
    """What a head gives for a batch."""

    losses: tf.Tensor  # [B] float32, of each example
    outputs: dict[str, tf.Tensor]  # [B, ...] each, by their released names


class TaskHeads(NamedLayer):
    """The heads of all tasks: their variables are task_specific/<task>/..."""

    def __init__(self, heads: list[NamedLayer], init):
        super().__init__("task_specific", init)
        self.heads = heads


def cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """-log softmax(logits) at the labels: [...] integers, [..., n] to [...]."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


def multiclass_outputs(logits: tf.Tensor) -> dict[str, tf.Tensor]:
    """Logits [..., n] and the class with the highest."""
    return {"logits": logits, "predictions": tf.argmax(logits, -1, tf.int32)}
