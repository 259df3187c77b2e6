"""Adversarial ELECTRA (appendix F): the generator is trained by REINFORCE to make the discriminator fail."""

import numpy as np
import tensorflow as tf

from configure_pretraining import PretrainingConfig
from model.modeling import Dense
from pretrain import metrics
from pretrain.masking import Masked, Specials
from pretrain.objectives import Electra, LossAndSums, Totals


class Adversarial(Electra):
    """The generator maximises L_Disc at the masked positions; it has no masked language model's loss.

    Reward R = -log of the probability that the discriminator gives to the right answer about a sample. Gradient:
    grad log p_G(sample) (R - b). Baseline b = -log sigmoid(w h_G), of the generator's states without gradient into
    them, trained with the cross-entropy of sigmoid(w h_G) against exp(-R).
    """

    sum_shapes = {**Electra.sum_shapes, **metrics.REWARD_SHAPES}

    def __init__(self, config: PretrainingConfig, specials: Specials, token_counts: np.ndarray | None = None):
        super().__init__(config, specials, token_counts)
        self.baseline = Dense("baseline_predictions", self.generator.encoder.config.hidden_size, 1, self.init)
        self.layers.append(self.baseline)

    def loss(self, batch: Masked, totals: Totals, training: bool) -> LossAndSums:
        """This part's share of the global loss, and its metric sums."""
        predicted = self.generator.predict(batch, training)
        sums = self.generator_loss(predicted, batch, totals)[1]
        corrupted = self.corrupt(batch, self.sample(predicted.logits, batch))
        verdict = self.discriminate(batch, corrupted, predicted, training)
        main_loss, more = self.discriminator_loss(verdict, batch, corrupted, totals)

        reward = tf.nn.sigmoid_cross_entropy_with_logits(corrupted.labels, verdict)  # [B, L]
        reward = tf.stop_gradient(tf.gather(reward, batch.positions, batch_dims=1))  # [B, K]
        states = tf.stop_gradient(predicted.hidden)
        guess = tf.cast(tf.squeeze(self.baseline(states), -1), tf.float32)  # logits of exp(-b)
        losses = reinforce(self.noise(predicted.logits, batch), corrupted.sampled, reward, guess)
        loss = self.config.gen_weight * tf.reduce_sum(losses * batch.weights) / (totals.masked + 1e-6) + main_loss
        rewards = metrics.reward_sums(reward, tf.nn.softplus(-guess), batch.weights)
        hits = metrics.sampled_sums(corrupted.sampled, batch)
        return loss, self.summed(loss, batch, sums, more, hits, rewards)


def reinforce(logits: tf.Tensor, sampled: tf.Tensor, reward: tf.Tensor, guess: tf.Tensor) -> tf.Tensor:
    """Losses [B, K] whose gradient is that of REINFORCE with its baseline, and of the baseline's own training.

    Args:
      logits: [B, K, V], what the samples were drawn from.
      sampled: [B, K] ids.
      reward: [B, K], without gradient.
      guess: [B, K], logits of the baseline: b = -log sigmoid(guess).
    """
    advantage = tf.stop_gradient(reward - tf.nn.softplus(-guess))
    nll = tf.nn.sparse_softmax_cross_entropy_with_logits(sampled, logits)  # -log p_G(sample)
    return advantage * nll + tf.nn.sigmoid_cross_entropy_with_logits(tf.exp(-reward), guess)
