"""Generators: what fills the masked positions. Each gives logits [B, K, V] and names its layers."""

import math

import tensorflow as tf

from model import randomness
from model.modeling import Dense, Encoder, Initializer, LayerNorm, NamedLayer, gelu
from pretrain.masking import Masked


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


class MaskedLM:
    """A Transformer that predicts the masked tokens (ELECTRA, section 2, p_G).

    Args:
      encoder: its encoder, shared with the discriminator where all weights are tied.
      head: its output layer.
      salt: sets its dropout apart from that of another pass through the same encoder.
    """

    def __init__(self, encoder: Encoder, head: MaskedLMHead, salt: str = "generator"):
        self.encoder, self.head, self.salt = encoder, head, salt
        self.layers = [encoder, head]

    def logits(self, batch: Masked, training: bool) -> tf.Tensor:
        keys = randomness.fold(batch.keys, randomness.salt_of(self.salt)) if training else None
        output = self.encoder(batch.masked_ids, batch.input_mask, batch.segment_ids, keys)
        hidden = tf.gather(output.sequence, batch.positions, batch_dims=1)  # [B, K, D]
        return self.head(hidden, self.encoder.embeddings.word_embeddings)


class Uniform:
    """Every token of the vocabulary with the same probability; nothing to train."""

    def __init__(self, vocab_size: int):
        self.vocab_size = vocab_size
        self.layers = []

    def logits(self, batch: Masked, training: bool) -> tf.Tensor:
        shape = [tf.shape(batch.positions)[0], batch.positions.shape[1], self.vocab_size]
        return tf.fill(shape, -math.log(self.vocab_size))
