"""Generators: what fills the masked positions. One interface: the layers, and predictions for a masked batch.

Shapes: B batch, L length, K masked positions, V vocabulary, D hidden size.
"""

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from configure_pretraining import PretrainingConfig
from model import randomness
from model.config import TransformerConfig
from model.modeling import Dense, Embeddings, Encoder, Initializer, LayerNorm, NamedLayer, gelu
from pretrain.masking import Masked
from util.errors import UserError

UNSEEN = 1e-20  # probability of a token that the corpus never has: lost in the sums that samples are drawn from


class Predictions(NamedTuple):
    """What a generator says of a masked batch."""

    logits: tf.Tensor  # [B, K, V] float32, of the masked positions
    hidden: tf.Tensor | None = None  # [B, K, D], what they come from
    cloze: tf.Tensor | None = None  # [B, L, V] float32: two towers predict every position from those around it


class Generator(Protocol):
    """What an objective samples from."""

    layers: list[NamedLayer]

    def predict(self, batch: Masked, training: bool) -> Predictions:
        """Predictions for the masked positions; dropout where `training`."""


class MaskedLMHead(NamedLayer):
    """Hidden states to logits over the vocabulary: dense with gelu, layer norm, the tied table, a bias."""

    def __init__(self, name: str, hidden_size: int, embedding_size: int, vocab_size: int, init: Initializer):
        super().__init__(name, init)
        self.shapes = {"output_bias": (vocab_size,)}
        self.dense = Dense("dense", hidden_size, embedding_size, init)
        self.norm = LayerNorm(embedding_size, init)

    def call(self, hidden, table):
        """[B, K, D] and the token table [V, E] to [B, K, V] float32."""
        x = self.norm(gelu(self.dense(hidden)))
        flat = tf.reshape(x, [-1, x.shape[-1]])
        logits = tf.cast(tf.matmul(flat, tf.cast(table, x.dtype), transpose_b=True), tf.float32)
        return tf.reshape(logits + self.output_bias, [tf.shape(x)[0], x.shape[1], table.shape[0]])


def head_of(name: str, encoder: Encoder, init: Initializer, states: int = 1) -> MaskedLMHead:
    """The head that predicts tokens from `states` hidden states of an encoder, with its table."""
    sizes = (states * encoder.config.hidden_size, encoder.embeddings.embedding_size, encoder.config.vocab_size)
    return MaskedLMHead(name, *sizes, init)


class MaskedLM:
    """A Transformer that predicts the masked tokens (ELECTRA, section 2, p_G).

    Args:
      encoder: its encoder, shared with the discriminator where all weights are tied.
      init: of its head.
      salt: sets its dropout apart from that of another pass through the same encoder.
    """

    def __init__(self, encoder: Encoder, init: Initializer, salt: str = "generator"):
        self.encoder, self.salt = encoder, salt
        self.head = head_of("generator_predictions", encoder, init)
        self.layers = [encoder, self.head]

    def predict(self, batch: Masked, training: bool) -> Predictions:
        keys = randomness.fold(batch.keys, randomness.salt_of(self.salt)) if training else None
        output = self.encoder(batch.masked_ids, batch.input_mask, batch.segment_ids, keys)
        hidden = tf.gather(output.sequence, batch.positions, batch_dims=1)  # [B, K, D]
        return Predictions(self.head(hidden, self.encoder.embeddings.word_embeddings), hidden)


class TwoTowers:
    """Electric's noise model q: position t from the left tower's state of t - 1 and the right tower's of t + 1.

    It reads the text itself, nothing masked, and predicts every position. As released: the states are rolled
    cyclically, and the output table is the left tower's.
    """

    def __init__(self, left: Encoder, right: Encoder, init: Initializer):
        self.left, self.right = left, right
        self.head = head_of("cloze_predictions", left, init, states=2)
        self.layers = [left, right, self.head]

    def states(self, batch: Masked, training: bool) -> tf.Tensor:
        """[B, L, 2 D]: both towers' states around each position."""
        keys = randomness.fold(batch.keys, randomness.salt_of("generator")) if training else None
        length = batch.input_ids.shape[1]
        causal = tf.linalg.band_part(tf.ones([length, length], tf.int32), -1, 0)  # a query sees itself and its left
        seen = [mask * batch.input_mask[:, None, :] for mask in (causal, tf.transpose(causal))]  # [B, L, L]
        left, right = (
            tower(batch.input_ids, batch.input_mask, batch.segment_ids, keys, mask).sequence
            for tower, mask in zip((self.left, self.right), seen)
        )
        return tf.concat([tf.roll(left, 1, 1), tf.roll(right, -1, 1)], -1)

    def predict(self, batch: Masked, training: bool) -> Predictions:
        states = self.states(batch, training)
        cloze = self.head(states, self.left.embeddings.word_embeddings)
        at_masks = (tf.gather(values, batch.positions, batch_dims=1) for values in (cloze, states))
        return Predictions(*at_masks, cloze)


class Fixed:
    """The same distribution at every position; nothing to train.

    Args:
      log_probabilities: [V].
    """

    def __init__(self, log_probabilities: np.ndarray):
        self.log_probabilities = log_probabilities.astype(np.float32)
        self.layers = []

    def predict(self, batch: Masked, training: bool) -> Predictions:
        shape = [tf.shape(batch.positions)[0], batch.positions.shape[1], len(self.log_probabilities)]
        return Predictions(tf.broadcast_to(tf.constant(self.log_probabilities), shape))


def uniform(vocab_size: int) -> Fixed:
    """Every token of the vocabulary with the same probability."""
    return Fixed(np.full([vocab_size], -math.log(vocab_size)))


def unigram(counts: np.ndarray | None) -> Fixed:
    """Tokens as often as the corpus has them (ELECTRA, section 3.2); `counts` [V].

    Raises:
      UserError: there are no counts.
    """
    if counts is None or not np.sum(counts):
        raise UserError(
            'generator "unigram" needs the tokens\' frequencies, and there are none: the training shards hold no '
            "token but [CLS], [SEP] and [MASK], or were not read; set pretrain_tfrecords to them"
        )
    return Fixed(np.log(np.maximum(counts / np.sum(counts, dtype=np.float64), UNSEEN)))


class DisentangledEmbeddings(Embeddings):
    """Embeddings whose token table is another one, without gradient, plus a difference (DeBERTaV3, section 3.3).

    Args:
      config, embedding_size, init: as of `Embeddings`.
      base: gives the other table.
    """

    def __init__(
        self, config: TransformerConfig, embedding_size: int, init: Initializer, base: Callable[[], tf.Tensor]
    ):
        super().__init__(config, embedding_size, init)
        self.shapes = {"word_embeddings_difference": self.shapes.pop("word_embeddings"), **self.shapes}
        self.base = base

    @property
    def word_embeddings(self) -> tf.Tensor:
        """[V, E]."""
        return tf.stop_gradient(tf.convert_to_tensor(self.base())) + self.word_embeddings_difference


def make_generator(
    config: PretrainingConfig, main: Encoder, init: Initializer, token_counts: np.ndarray | None = None
) -> Generator:
    """The generator that the hparams name, beside or inside the main network.

    Args:
      token_counts: [V], for the unigram generator.
    """
    if config.generator == "uniform":
        return uniform(config.vocab_size)
    if config.generator == "unigram":
        return unigram(token_counts)
    if config.generator in (None, "tied"):
        return MaskedLM(main, init)
    shared = main.embeddings if config.weight_sharing == "embeddings" else None

    def encoder(name: str) -> Encoder:
        sizes, width = config.generator_config(), config.generator_embedding_size
        return Encoder(name, sizes, width, init, shared, config.precision, config.recompute_layers)

    if config.generator == "two_tower":
        return TwoTowers(encoder("generator_ltr"), encoder("generator_rtl"), init)
    return MaskedLM(encoder("generator"), init)
