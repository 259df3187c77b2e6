"""Heads on the pooled output: classes, several labels at once, or a number."""

import tensorflow as tf

from finetune.heads import HeadOutput, cross_entropy, multiclass_outputs
from model.modeling import Dense, Dropout, EncoderOutput, Initializer, NamedLayer

POOLED_DROPOUT = 0.1  # while training, whatever the encoder's config says


class PooledHead(NamedLayer):
    """The pooled output [B, D], dropped out, to [B, n]."""

    def __init__(self, task_name: str, hidden_size: int, outputs: int, init: Initializer):
        super().__init__(task_name, init)
        self.task_name = task_name
        self.dropout = Dropout("dropout", POOLED_DROPOUT, init)
        self.dense = Dense("dense", hidden_size, outputs, init)

    def project(self, output: EncoderOutput, keys: tf.Tensor | None) -> tf.Tensor:
        """[B, n] float32; `keys` [B] for dropout, None for none."""
        return self.dense(self.dropout(tf.cast(output.pooled, tf.float32), keys))


class ClassificationHead(PooledHead):
    """One of n classes, or any of n labels (`multi_label`)."""

    def __init__(self, task_name: str, hidden_size: int, n_labels: int, multi_label: bool, init: Initializer):
        super().__init__(task_name, hidden_size, n_labels, init)
        self.multi_label = multi_label

    def call(self, output: EncoderOutput, features: dict[str, tf.Tensor], keys=None) -> HeadOutput:
        """Cross-entropy; of each label on its own, summed, where there are several at once."""
        logits, labels = self.project(output, keys), features[f"{self.task_name}_label_ids"]
        if not self.multi_label:
            return HeadOutput(cross_entropy(labels, logits), multiclass_outputs(logits))
        losses = tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(labels, tf.float32), logits)
        return HeadOutput(tf.reduce_sum(losses, -1), {"logits": logits, "predictions": tf.cast(logits > 0, tf.int32)})


class RegressionHead(PooledHead):
    """A number; its target lies between 0 and 1."""

    def __init__(self, task_name: str, hidden_size: int, init: Initializer):
        super().__init__(task_name, hidden_size, 1, init)

    def call(self, output: EncoderOutput, features: dict[str, tf.Tensor], keys=None) -> HeadOutput:
        """Squared error."""
        predictions = tf.squeeze(self.project(output, keys), -1)
        return HeadOutput(tf.square(predictions - features[f"{self.task_name}_targets"]), {"predictions": predictions})
