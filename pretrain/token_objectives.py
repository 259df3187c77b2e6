"""Variants between BERT and ELECTRA (section 3.4): the main network predicts tokens of the corrupted text."""

import tensorflow as tf

from model.modeling import Dense
from pretrain import metrics
from pretrain.generators import MaskedLMHead, Predictions, head_of
from pretrain.masking import Masked
from pretrain.objectives import Corrupted, Electra, LossAndSums, Totals


class ReplaceMLM(Electra):
    """A masked language model whose masked positions hold the generator's samples instead of [MASK]."""

    sum_shapes = {**metrics.MASKED_LM_SHAPES, **metrics.SAMPLED_SHAPES, **metrics.TOKEN_SHAPES}

    def _make_head(self) -> MaskedLMHead:
        return head_of("token_predictions", self.main, self.init)

    def main_loss(
        self, batch: Masked, corrupted: Corrupted, predicted: Predictions, totals: Totals, training: bool
    ) -> LossAndSums:
        """-log p(x_t | corrupted text), mean over the masked positions, times disc_weight."""
        states = tf.gather(self.encode(batch, corrupted.input_ids, training), batch.positions, batch_dims=1)
        logits = self.head(states, self.main.embeddings.word_embeddings)  # [B, K, V]
        nll = tf.nn.sparse_softmax_cross_entropy_with_logits(batch.target_ids, logits)
        loss = self.config.disc_weight * tf.reduce_sum(nll * batch.weights) / (totals.masked + 1e-6)
        guessed = tf.argmax(logits, -1, output_type=tf.int32)
        return loss, metrics.token_sums(guessed == batch.target_ids, nll, batch.weights)


class AllTokensMLM(ReplaceMLM):
    """As `ReplaceMLM`, but predicts every token, with a gate that copies: c 1[w = input] + (1 - c) softmax."""

    def _make_head(self) -> MaskedLMHead:
        self.gate = Dense("copy_gate", self.main.config.hidden_size, 1, self.init)
        self.layers.append(self.gate)
        return super()._make_head()

    def main_loss(
        self, batch: Masked, corrupted: Corrupted, predicted: Predictions, totals: Totals, training: bool
    ) -> LossAndSums:
        """-log p(x_t | corrupted text), mean over all real tokens, times disc_weight."""
        states = self.encode(batch, corrupted.input_ids, training)  # [B, L, D]
        gate = tf.cast(tf.squeeze(self.gate(states), -1), tf.float32)  # [B, L]
        logits = self.head(states, self.main.embeddings.word_embeddings)  # [B, L, V]
        log_p = log_mixture(logits, gate, corrupted.input_ids, batch.input_ids)
        real = tf.cast(batch.input_mask, tf.float32)
        loss = self.config.disc_weight * tf.reduce_sum(-log_p * real) / (totals.tokens + 1e-6)
        right = most_likely(logits, gate, corrupted.input_ids) == batch.input_ids
        return loss, metrics.token_sums(right, -log_p, real)


def log_mixture(logits: tf.Tensor, gate: tf.Tensor, copied: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
    """log(c 1[token = copied] + (1 - c) softmax(token)) [B, L], with c = sigmoid(gate).

    Args:
      logits: [B, L, V].
      gate: [B, L].
      copied, tokens: [B, L] ids, the input and what is asked for.
    """
    log_new = tf.math.log_sigmoid(-gate) - tf.nn.sparse_softmax_cross_entropy_with_logits(tokens, logits)
    log_copy = tf.math.log_sigmoid(gate)
    highest = tf.stop_gradient(tf.maximum(log_new, log_copy))
    both = highest + tf.math.log(tf.exp(log_new - highest) + tf.exp(log_copy - highest))
    return tf.where(tokens == copied, both, log_new)


def most_likely(logits: tf.Tensor, gate: tf.Tensor, copied: tf.Tensor) -> tf.Tensor:
    """The ids [B, L] that the mixture of `log_mixture` finds most likely."""
    best = tf.argmax(logits, -1, output_type=tf.int32)
    keeps = log_mixture(logits, gate, copied, copied) >= log_mixture(logits, gate, copied, best)
    return tf.where(keeps, copied, best)
