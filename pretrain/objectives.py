"""Pre-training objectives: what is computed from a masked batch, and the loss. One class each, one interface.

Here are the two that the others build on: the masked language model, and ELECTRA. Their variants override one step
of the way: sample, corrupt, discriminate, loss (`pretrain.electric`, `token_objectives`, `adversarial`, `two_stage`).

`totals` are the weights of the whole global batch, so that the loss is the same number whether one device computes
it or eight, in one piece or in micro-batches; each device's loss is its share of that number.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from configure_pretraining import PretrainingConfig
from model import randomness
from model.modeling import Dense, Encoder, Initializer, NamedLayer, gelu
from pretrain import metrics
from pretrain.generators import DisentangledEmbeddings, Predictions, make_generator
from pretrain.masking import Inputs, Masked, Specials, candidates, draw, mask, replace_at, sample, wanted
from pretrain.masking_units import draw_units

CORRECT_PENALTY = 1000.0  # subtracted from the original token's logit by disallow_correct
LossAndSums = tuple[tf.Tensor, metrics.Sums]


class Totals(NamedTuple):
    """What the losses are divided by, summed over the global batch."""

    masked: tf.Tensor  # scalar, masked positions
    tokens: tf.Tensor  # scalar, real tokens
    candidates: tf.Tensor  # scalar, real tokens that are not special


class Corrupted(NamedTuple):
    """The discriminator's input."""

    input_ids: tf.Tensor  # [B, L] int32
    labels: tf.Tensor  # [B, L] float32, 1 for replaced
    sampled: tf.Tensor  # [B, K] int32, what the generator wrote


class DiscriminatorHead(NamedLayer):
    """Hidden states [B, L, D] to the logit of "replaced" [B, L]: dense with gelu, then one output."""

    def __init__(self, hidden_size: int, init: Initializer):
        super().__init__("discriminator_predictions", init)
        self.dense = Dense("dense", hidden_size, hidden_size, init)
        self.dense_1 = Dense("dense_1", hidden_size, 1, init)

    def call(self, hidden):
        return tf.cast(tf.squeeze(self.dense_1(gelu(self.dense(hidden))), -1), tf.float32)


class MaskedLanguageModel:
    """BERT without its second task: L = mean of -log p(x_t | masked text) over the masked positions.

    Args:
      config: the hparams.
      specials: ids that the objective must know.
      token_counts: [V], how often the corpus has each token; for the unigram generator.
    """

    sum_shapes = metrics.MASKED_LM_SHAPES

    def __init__(self, config: PretrainingConfig, specials: Specials, token_counts: np.ndarray | None = None):
        self.config, self.specials = config, specials
        main, width = config.discriminator_config(), config.main_embedding_size
        self.init = Initializer(config.seed, main.initializer_range)
        embeddings = None
        if config.weight_sharing == "gdes":
            embeddings = DisentangledEmbeddings(main, width, self.init, lambda: self._generator_table)
        self.main = Encoder("electra", main, width, self.init, embeddings, config.precision, config.recompute_layers)
        self.generator = make_generator(config, self.main, self.init, token_counts)
        self.layers = [self.main, *(layer for layer in self.generator.layers if layer is not self.main)]

    @property
    def _generator_table(self) -> tf.Tensor:
        return self.generator.encoder.embeddings.word_embeddings

    def begin(self, step: int) -> None:
        """Is called before the step `step` where training or evaluation starts and where a stage begins."""

    def frozen(self) -> set[str]:
        """Names of the variables that do not move in this stage."""
        return set()

    def prepare(self, inputs: Inputs, keys: tf.Tensor) -> Masked:
        """Masks a batch; `keys` [B] uint32 are the randomness of each example at this step."""
        config, slots = self.config, self.config.max_predictions_per_seq
        number = wanted(inputs, self.specials, slots, config.mask_prob)
        if config.masking_unit == "token":
            draws = draw(inputs, keys, self.specials, slots, config.released_quirks)
        else:
            draws, number = draw_units(inputs, keys, self.specials, slots, number, config.masking_unit)
        return mask(inputs, draws, keys, self.specials, number)

    def totals(self, batch: Masked) -> Totals:
        """The weights of a (part of the) batch, to be summed over all parts."""
        masks = (batch.weights, batch.input_mask, candidates(batch, self.specials))
        return Totals(*(tf.reduce_sum(tf.cast(weights, tf.float32)) for weights in masks))

    def loss(self, batch: Masked, totals: Totals, training: bool) -> LossAndSums:
        """This part's share of the global loss, and its metric sums."""
        loss, sums = self.generator_loss(self.generator.predict(batch, training), batch, totals)
        return loss, self.summed(loss, batch, sums)

    def summed(self, loss: tf.Tensor, batch: Masked, *sums: metrics.Sums) -> metrics.Sums:
        """All metric sums of a part."""
        tokens = tf.reduce_sum(tf.cast(batch.input_mask, tf.float32))
        return {**{k: v for some in sums for k, v in some.items()}, "loss": tf.stop_gradient(loss), "tokens": tokens}

    def generator_loss(self, predicted: Predictions, batch: Masked, totals: Totals) -> LossAndSums:
        """L_MLM (section 2) times gen_weight; of two towers, the same over every token that is not special."""
        nll = tf.nn.sparse_softmax_cross_entropy_with_logits(batch.target_ids, predicted.logits)  # [B, K]
        sums = metrics.masked_lm_sums(predicted.logits, nll, batch.target_ids, batch.weights)
        weights, total = batch.weights, totals.masked
        if predicted.cloze is not None:
            nll = tf.nn.sparse_softmax_cross_entropy_with_logits(batch.input_ids, predicted.cloze)  # [B, L]
            weights, total = tf.cast(candidates(batch, self.specials), tf.float32), totals.candidates
        return self.config.gen_weight * tf.reduce_sum(nll * weights) / (total + 1e-6), sums


class Electra(MaskedLanguageModel):
    """Replaced-token detection: min over both networks of gen_weight L_MLM + disc_weight L_Disc (section 2)."""

    sum_shapes = {**metrics.MASKED_LM_SHAPES, **metrics.SAMPLED_SHAPES, **metrics.DISCRIMINATOR_SHAPES}

    def __init__(self, config: PretrainingConfig, specials: Specials, token_counts: np.ndarray | None = None):
        super().__init__(config, specials, token_counts)
        self.head = self._make_head()
        self.layers.append(self.head)

    def _make_head(self) -> NamedLayer:
        return DiscriminatorHead(self.main.config.hidden_size, self.init)

    def loss(self, batch: Masked, totals: Totals, training: bool) -> LossAndSums:
        """This part's share of the global loss, and its metric sums."""
        predicted = self.generator.predict(batch, training)
        generator_loss, sums = self.generator_loss(predicted, batch, totals)
        corrupted = self.corrupt(batch, self.sample(predicted.logits, batch))
        main_loss, more = self.main_loss(batch, corrupted, predicted, totals, training)
        loss = generator_loss + main_loss
        return loss, self.summed(loss, batch, sums, more, metrics.sampled_sums(corrupted.sampled, batch))

    def noise(self, logits: tf.Tensor, batch: Masked) -> tf.Tensor:
        """The logits [B, K, V] that replacements are drawn from."""
        logits = logits / self.config.temperature
        if self.config.disallow_correct:
            logits -= CORRECT_PENALTY * tf.one_hot(batch.target_ids, logits.shape[-1])
        return logits

    def sample(self, logits: tf.Tensor, batch: Masked) -> tf.Tensor:
        """x-hat [B, K]: tokens drawn from the generator; no gradient flows through them."""
        return sample(tf.nn.softmax(self.noise(tf.stop_gradient(logits), batch)), batch.keys)

    def corrupt(self, batch: Masked, sampled: tf.Tensor) -> Corrupted:
        """The original text with the samples at all masked positions, also those that kept their token.

        A sample that equals the original counts as original.
        """
        ids = replace_at(batch.input_ids, batch.positions, sampled)
        return Corrupted(ids, tf.cast(ids != batch.input_ids, tf.float32), sampled)

    def main_loss(
        self, batch: Masked, corrupted: Corrupted, predicted: Predictions, totals: Totals, training: bool
    ) -> LossAndSums:
        """The main network's loss, times disc_weight."""
        logits = self.discriminate(batch, corrupted, predicted, training)
        return self.discriminator_loss(logits, batch, corrupted, totals)

    def encode(self, batch: Masked, ids: tf.Tensor, training: bool) -> tf.Tensor:
        """The main network's last states [B, L, D] of a text."""
        keys = randomness.fold(batch.keys, randomness.salt_of("discriminator")) if training else None
        return self.main(ids, batch.input_mask, batch.segment_ids, keys).sequence

    def discriminate(
        self, batch: Masked, corrupted: Corrupted, predicted: Predictions, training: bool
    ) -> tf.Tensor:
        """Logits [B, L] of "replaced"."""
        return self.head(self.encode(batch, corrupted.input_ids, training))

    def discriminator_loss(
        self, logits: tf.Tensor, batch: Masked, corrupted: Corrupted, totals: Totals
    ) -> LossAndSums:
        """L_Disc (section 2) times disc_weight: over all real tokens, [CLS] and [SEP] included."""
        real = tf.cast(batch.input_mask, tf.float32)
        bce = tf.nn.sigmoid_cross_entropy_with_logits(corrupted.labels, logits)
        loss = self.config.disc_weight * tf.reduce_sum(bce * real) / (totals.tokens + 1e-6)
        return loss, metrics.discriminator_sums(logits, bce, corrupted.labels, real)


class ElectraMaskedOnly(Electra):
    """The paper's "ELECTRA 15%": L_Disc over the masked positions alone."""

    def discriminator_loss(
        self, logits: tf.Tensor, batch: Masked, corrupted: Corrupted, totals: Totals
    ) -> LossAndSums:
        """L_Disc over the masked positions, times disc_weight; the metrics are of these positions too."""
        weights = masked_places(batch)
        bce = tf.nn.sigmoid_cross_entropy_with_logits(corrupted.labels, logits)
        loss = self.config.disc_weight * tf.reduce_sum(bce * weights) / (totals.masked + 1e-6)
        return loss, metrics.discriminator_sums(logits, bce, corrupted.labels, weights)


def masked_places(batch: Masked) -> tf.Tensor:
    """[B, L] float32: 1 at the masked positions."""
    used = tf.cast(batch.weights, tf.int32)
    return tf.cast(replace_at(tf.zeros_like(batch.input_ids), batch.positions, used), tf.float32)
