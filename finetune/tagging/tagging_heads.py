"""A head on the first piece of each word."""

import tensorflow as tf

from finetune.heads import HeadOutput, cross_entropy, multiclass_outputs
from model.modeling import Dense, EncoderOutput, Initializer, NamedLayer


class TaggingHead(NamedLayer):
    """One of n labels for each word."""

    def __init__(self, task_name: str, hidden_size: int, n_labels: int, init: Initializer):
        super().__init__(task_name, init)
        self.task_name = task_name
        self.dense = Dense("dense", hidden_size, n_labels, init)

    def call(self, output: EncoderOutput, features: dict[str, tf.Tensor], keys=None) -> HeadOutput:
        """Cross-entropy summed over the words; logits [B, L, n] and predictions [B, L] are of words, not of pieces."""
        positions, labels, mask = (
            features[f"{self.task_name}_{name}"] for name in ("labeled_positions", "labels", "labels_mask")
        )
        words = tf.gather(tf.cast(output.sequence, tf.float32), positions, batch_dims=1)  # [B, L, D]
        logits = self.dense(words)
        losses = tf.reduce_sum(cross_entropy(labels, logits) * mask, -1)
        return HeadOutput(losses, multiclass_outputs(logits))
