"""Electric (Clark et al., EMNLP 2020): an energy-based cloze model, trained by noise-contrastive estimation."""

import math

import tensorflow as tf

from pretrain.generators import Predictions
from pretrain.masking import Masked, replace_at
from pretrain.objectives import Corrupted, Electra, masked_places


class Electric(Electra):
    """p(x_t | the others) = exp(-E(x)_t) up to a constant, told apart from the noise q of two towers.

    The logit of "replaced" is E(x)_t + log q(x_t | the others) + log(k / (n - k)), the last term with the mask
    probability in the place of k / n; no gradient flows into q. E is what `head` gives.
    """

    def corrupt(self, batch: Masked, sampled: tf.Tensor) -> Corrupted:
        """The text with the samples; all masked positions count as replaced, also where a sample is the original."""
        return Corrupted(replace_at(batch.input_ids, batch.positions, sampled), masked_places(batch), sampled)

    def discriminate(
        self, batch: Masked, corrupted: Corrupted, predicted: Predictions, training: bool
    ) -> tf.Tensor:
        """Logits [B, L] of "replaced", at every position, [CLS] too."""
        energies = super().discriminate(batch, corrupted, predicted, training)
        odds = math.log(self.config.mask_prob / (1.0 - self.config.mask_prob))
        return energies + log_noise(predicted.cloze, corrupted.input_ids) + odds


def log_noise(cloze: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """log q(x_t) [B, L] of tokens under the towers' logits [B, L, V]; without gradient."""
    return -tf.nn.sparse_softmax_cross_entropy_with_logits(ids, tf.stop_gradient(cloze))
