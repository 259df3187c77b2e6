"""Pre-training objectives: what is computed from a masked batch, and the loss. One class each, one interface.

`totals` are the weights of the whole global batch, so that the loss is the same number whether one device computes
it or eight, in one piece or in micro-batches; each device's loss is its share of that number.
"""

from typing import NamedTuple

import tensorflow as tf

from configure_pretraining import PretrainingConfig
from model import randomness
from model.modeling import Dense, Encoder, Initializer, NamedLayer, gelu
from pretrain import metrics
from pretrain.generators import MaskedLM, MaskedLMHead, Uniform
from pretrain.masking import Inputs, Masked, Specials, draw, mask, replace_at, sample

CORRECT_PENALTY = 1000.0  # subtracted from the original token's logit by disallow_correct


class Totals(NamedTuple):
    """What the losses are divided by, summed over the global batch."""

    masked: tf.Tensor  # scalar, masked positions
    tokens: tf.Tensor  # scalar, real tokens


class Corrupted(NamedTuple):
    """The discriminator's input."""

    input_ids: tf.Tensor  # [B, L] int32
    labels: tf.Tensor  # [B, L] float32, 1 for replaced; a sample equal to the original counts as original
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
    """BERT without its second task: L = mean of -log p(x_t | masked text) over the masked positions."""

    sum_shapes = metrics.MASKED_LM_SHAPES

    def __init__(self, config: PretrainingConfig, specials: Specials):
        self.config, self.specials = config, specials
        main = config.discriminator_config()
        self.init = Initializer(config.seed, main.initializer_range)
        embedding_size = config.embedding_size or main.hidden_size
        self.main = Encoder("electra", main, embedding_size, self.init, compute_dtype=config.precision)
        self.generator = self._make_generator()
        self.layers = [self.main, *(layer for layer in self.generator.layers if layer is not self.main)]

    def _make_generator(self) -> MaskedLM | Uniform:
        return MaskedLM(self.main, self._make_head(self.main))

    def _make_head(self, encoder: Encoder) -> MaskedLMHead:
        return MaskedLMHead(
            "generator_predictions",
            encoder.config.hidden_size,
            encoder.embeddings.embedding_size,
            encoder.config.vocab_size,
            self.init,
        )

    def prepare(self, inputs: Inputs, keys: tf.Tensor) -> Masked:
        """Masks a batch; `keys` [B] uint32 are the randomness of each example at this step."""
        draws = draw(inputs, keys, self.specials, self.config.max_predictions_per_seq, self.config.released_quirks)
        return mask(inputs, draws, keys, self.specials, self.config.mask_prob)

    def totals(self, batch: Masked) -> Totals:
        """The weights of a (part of the) batch, to be summed over all parts."""
        return Totals(tf.reduce_sum(batch.weights), tf.cast(tf.reduce_sum(batch.input_mask), tf.float32))

    def loss(self, batch: Masked, totals: Totals, training: bool) -> tuple[tf.Tensor, metrics.Sums]:
        """This part's share of the global loss, and its metric sums."""
        logits = self.generator.logits(batch, training)
        loss, sums = self.masked_lm_loss(logits, batch, totals)
        return loss, {**sums, "loss": tf.stop_gradient(loss), "tokens": self.totals(batch).tokens}

    def masked_lm_loss(self, logits: tf.Tensor, batch: Masked, totals: Totals) -> tuple[tf.Tensor, metrics.Sums]:
        """L_MLM (section 2) times gen_weight."""
        nll = tf.nn.sparse_softmax_cross_entropy_with_logits(batch.target_ids, logits)  # [B, K]
        loss = self.config.gen_weight * tf.reduce_sum(nll * batch.weights) / (totals.masked + 1e-6)
        return loss, metrics.masked_lm_sums(logits, nll, batch.target_ids, batch.weights)


class Electra(MaskedLanguageModel):
    """Replaced-token detection: min over both networks of gen_weight L_MLM + disc_weight L_Disc (section 2)."""

    sum_shapes = {**metrics.MASKED_LM_SHAPES, **metrics.DISCRIMINATOR_SHAPES}

    def __init__(self, config: PretrainingConfig, specials: Specials):
        super().__init__(config, specials)
        self.head = DiscriminatorHead(self.main.config.hidden_size, self.init)
        self.layers.append(self.head)

    def _make_generator(self) -> MaskedLM | Uniform:
        config = self.config
        if config.uniform_generator:
            return Uniform(config.vocab_size)
        if not config.untied_generator:
            return super()._make_generator()
        sizes = config.generator_config()
        shared = None if config.untied_generator_embeddings else self.main.embeddings
        encoder = Encoder("generator", sizes, sizes.hidden_size, self.init, shared, config.precision)
        return MaskedLM(encoder, self._make_head(encoder))

    def loss(self, batch: Masked, totals: Totals, training: bool) -> tuple[tf.Tensor, metrics.Sums]:
        """This part's share of the global loss, and its metric sums."""
        logits = self.generator.logits(batch, training)
        generator_loss, sums = self.masked_lm_loss(logits, batch, totals)
        corrupted = self.corrupt(batch, self.sample(logits, batch))
        discriminator_loss, more = self.discriminator_loss(batch, corrupted, totals, training)
        loss = generator_loss + discriminator_loss
        hit = tf.cast(corrupted.sampled == batch.target_ids, tf.float32) * batch.weights
        return loss, {
            **sums,
            **more,
            "sampled/correct": tf.reduce_sum(hit),
            "loss": tf.stop_gradient(loss),
            "tokens": self.totals(batch).tokens,
        }

    def sample(self, logits: tf.Tensor, batch: Masked) -> tf.Tensor:
        """x-hat [B, K]: tokens drawn from the generator; no gradient flows through them."""
        logits = tf.stop_gradient(logits) / self.config.temperature
        if self.config.disallow_correct:
            logits -= CORRECT_PENALTY * tf.one_hot(batch.target_ids, logits.shape[-1])
        return sample(tf.nn.softmax(logits), batch.keys)

    def corrupt(self, batch: Masked, sampled: tf.Tensor) -> Corrupted:
        """The original text with the samples at all masked positions, also those that kept their token."""
        ids = replace_at(batch.input_ids, batch.positions, sampled)
        return Corrupted(ids, tf.cast(ids != batch.input_ids, tf.float32), sampled)

    def discriminator_loss(self, batch: Masked, corrupted: Corrupted, totals: Totals, training: bool):
        """L_Disc (section 2) times disc_weight: over all real tokens, [CLS] and [SEP] included."""
        keys = randomness.fold(batch.keys, randomness.salt_of("discriminator")) if training else None
        output = self.main(corrupted.input_ids, batch.input_mask, batch.segment_ids, keys)
        logits = self.head(output.sequence)  # [B, L]
        real = tf.cast(batch.input_mask, tf.float32)
        bce = tf.nn.sigmoid_cross_entropy_with_logits(corrupted.labels, logits)
        loss = self.config.disc_weight * tf.reduce_sum(bce * real) / (totals.tokens + 1e-6)
        return loss, metrics.discriminator_sums(logits, bce, corrupted.labels, real)


def make_objective(config: PretrainingConfig, specials: Specials) -> MaskedLanguageModel:
    """The objective that the hparams name, with its networks, built and initialised."""
    objective = (Electra if config.electra_objective else MaskedLanguageModel)(config, specials)
    for layer in objective.layers:
        layer.build()
    return objective
