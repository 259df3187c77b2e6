"""The Transformer encoder of ELECTRA as Keras layers.

A layer's path is its name in released checkpoints (electra/encoder/layer_0/attention/self/query/kernel): that is why
there is a layer called "self" and why the attention and the feed-forward network both end in one called "output".
Activations travel in the compute dtype; layer-norm statistics and softmax are float32 always. Dropout draws from
`model.randomness`, keyed by example and layer path.

Shapes: B batch, L length, D hidden, E embedding, V vocabulary, H heads, S head size.
"""

import functools
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from model import randomness
from model.config import TransformerConfig

LAYER_NORM_EPSILON = 1e-12
MASKED_SCORE = -10000.0  # added to the attention scores of padding


class Initializer(NamedTuple):
    """Fresh values: a function of the seed and the variable's name alone."""

    seed: int
    stddev: float

    def __call__(self, path: str, shape: tuple[int, ...]) -> keras.initializers.Initializer:
        """The released rule: truncated normal, but Glorot for the layers that were tf.layers.dense by default."""
        if path.endswith(("bias", "beta", "_difference")):
            return keras.initializers.Zeros()
        if path.endswith("gamma"):
            return keras.initializers.Ones()
        seed = (randomness.salt_of(path) ^ (self.seed * 0x9E3779B1)) & 0x7FFFFFFF
        if "embeddings_project" in path or path.startswith(("discriminator_predictions/dense_1", "task_specific")):
            return keras.initializers.GlorotUniform(seed=seed)
        return keras.initializers.TruncatedNormal(stddev=self.stddev, seed=seed)


class NamedLayer(keras.layers.Layer):
    """A Keras layer whose children and weights are built under its own path, top down.

    Subclasses set their children as attributes and list their weights in `shapes`; `build` does the rest.
    """

    def __init__(self, name: str, init: Initializer):
        super().__init__(name=name, autocast=False)
        self.init = init
        self.shapes: dict[str, tuple[int, ...]] = {}

    def build(self, input_shape=None):
        for name, shape in self.shapes.items():
            setattr(
                self,
                name,
                self.add_weight(
                    name=name, shape=shape, dtype="float32", initializer=self.init(f"{self.path}/{name}", shape)
                ),
            )
        for layer in self._layers:
            if not layer.built:
                layer.build()
        self.built = True


class Dense(NamedLayer):
    """x W + b over the last axis: [..., `size_in`] to [..., `size_out`], in the dtype of x."""

    def __init__(self, name: str, size_in: int, size_out: int, init: Initializer):
        super().__init__(name, init)
        self.size_in, self.size_out = size_in, size_out
        self.shapes = {"kernel": (size_in, size_out), "bias": (size_out,)}

    def call(self, x):
        flat = tf.reshape(x, [-1, self.size_in])
        flat = tf.nn.bias_add(tf.matmul(flat, tf.cast(self.kernel, x.dtype)), tf.cast(self.bias, x.dtype))
        return tf.reshape(flat, [*_batch_shape(x), self.size_out])


class LayerNorm(NamedLayer):
    """Layer normalisation over the last axis, statistics in float32, epsilon 1e-12 as released."""

    def __init__(self, size: int, init: Initializer):
        super().__init__("LayerNorm", init)
        self.shapes = {"gamma": (size,), "beta": (size,)}

    def call(self, x):
        wide = tf.cast(x, tf.float32)
        mean = tf.reduce_mean(wide, -1, keepdims=True)
        centred = wide - mean
        variance = tf.reduce_mean(tf.square(centred), -1, keepdims=True)
        scale = tf.math.rsqrt(variance + LAYER_NORM_EPSILON) * self.gamma
        return tf.cast(centred * scale + self.beta, x.dtype)


class Dropout(NamedLayer):
    """Inverted dropout of whole examples' tensors; `keys` [B] uint32 or None (evaluation: nothing is dropped)."""

    def __init__(self, name: str, rate: float, init: Initializer):
        super().__init__(name, init)
        self.rate = rate

    def call(self, x, keys):
        if keys is None or self.rate == 0:
            return x
        count = tf.size(x[0]) if None in x.shape[1:] else int(np.prod(x.shape[1:]))
        salt = randomness.salt_of(self.path)
        with tf.control_dependencies([x]):  # else the masks of all layers are made, and kept, from a step's beginning
            keep, probability = randomness.keep_mask(randomness.fold(keys, salt), count, self.rate)
            factor = tf.cast(keep, x.dtype) * tf.cast(1.0 / probability, x.dtype)
        return x * tf.reshape(factor, tf.shape(x))


class Embeddings(NamedLayer):
    """Token, segment and position tables, summed, normalised, dropped out: [B, L] ids to [B, L, E]."""

    def __init__(self, config: TransformerConfig, embedding_size: int, init: Initializer):
        super().__init__("embeddings", init)
        self.shapes = {
            "word_embeddings": (config.vocab_size, embedding_size),
            "token_type_embeddings": (config.type_vocab_size, embedding_size),
            "position_embeddings": (config.max_position_embeddings, embedding_size),
        }
        self.embedding_size = embedding_size
        self.norm = LayerNorm(embedding_size, init)
        self.dropout = Dropout("dropout", config.hidden_dropout_prob, init)

    def call(self, input_ids, segment_ids, keys):
        types = tf.one_hot(segment_ids, self.token_type_embeddings.shape[0], dtype=tf.float32)  # [B, L, 2]
        summed = (
            tf.gather(self.word_embeddings, input_ids)
            + tf.einsum("blt,te->ble", types, self.token_type_embeddings)
            + self.position_embeddings[: tf.shape(input_ids)[1]]
        )
        return self.dropout(self.norm(summed), keys)


class SelfAttention(NamedLayer):
    """Multi-head self-attention without its output projection: [B, L, D] to [B, L, D]."""

    def __init__(self, config: TransformerConfig, init: Initializer):
        super().__init__("self", init)
        size = config.hidden_size
        self.heads, self.head_size = config.num_attention_heads, config.head_size
        self.query, self.key, self.value = (Dense(n, size, size, init) for n in ("query", "key", "value"))
        self.dropout = Dropout("dropout", config.attention_probs_dropout_prob, init)

    def probabilities(self, x, mask):
        """Attention weights [B, H, L, L]; `mask` [B, 1 or L, L] is 1 where a key may be seen."""
        query, key = self._split(self.query(x)), self._split(self.key(x))  # [B, H, L, S]
        scores = tf.matmul(query, key, transpose_b=True) * (1.0 / np.sqrt(self.head_size))
        hidden = (1.0 - tf.cast(mask, tf.float32)) * MASKED_SCORE
        return tf.nn.softmax(tf.cast(scores, tf.float32) + hidden[:, None])

    def call(self, x, mask, keys):
        weights = self.dropout(tf.cast(self.probabilities(x, mask), x.dtype), keys)
        context = tf.transpose(tf.matmul(weights, self._split(self.value(x))), [0, 2, 1, 3])  # [B, L, H, S]
        return tf.reshape(context, tf.shape(x))

    def _split(self, x):
        return tf.transpose(tf.reshape(x, [*_batch_shape(x), self.heads, self.head_size]), [0, 2, 1, 3])


class ResidualOutput(NamedLayer):
    """LayerNorm(residual + dropout(dense(x))): how the attention and the feed-forward network end."""

    def __init__(self, size_in: int, config: TransformerConfig, init: Initializer):
        super().__init__("output", init)
        self.dense = Dense("dense", size_in, config.hidden_size, init)
        self.dropout = Dropout("dropout", config.hidden_dropout_prob, init)
        self.norm = LayerNorm(config.hidden_size, init)

    def call(self, x, residual, keys):
        return self.norm(residual + self.dropout(self.dense(x), keys))


class Attention(NamedLayer):
    """Self-attention with its projection, residual and norm."""

    def __init__(self, config: TransformerConfig, init: Initializer):
        super().__init__("attention", init)
        self.self_attention = SelfAttention(config, init)
        self.output_layer = ResidualOutput(config.hidden_size, config, init)

    def call(self, x, mask, keys):
        return self.output_layer(self.self_attention(x, mask, keys), x, keys)


class Intermediate(NamedLayer):
    """The wide half of the feed-forward network: gelu(x W + b)."""

    def __init__(self, config: TransformerConfig, init: Initializer):
        super().__init__("intermediate", init)
        self.dense = Dense("dense", config.hidden_size, config.intermediate_size, init)

    def call(self, x):
        return gelu(self.dense(x))


class TransformerLayer(NamedLayer):
    """One block: attention, then the feed-forward network."""

    def __init__(self, index: int, config: TransformerConfig, init: Initializer):
        super().__init__(f"layer_{index}", init)
        self.attention = Attention(config, init)
        self.intermediate = Intermediate(config, init)
        self.output_layer = ResidualOutput(config.intermediate_size, config, init)

    def call(self, x, mask, keys):
        x = self.attention(x, mask, keys)
        return self.output_layer(self.intermediate(x), x, keys)


class LayerStack(NamedLayer):
    """The blocks, one after the other; gives the output of each.

    With `recompute`, the backward pass computes a block's inside again instead of having kept it (Chen et al. 2016,
    "Training Deep Nets with Sublinear Memory Cost"): the same numbers, since dropout is a function of its keys.
    """

    def __init__(self, config: TransformerConfig, init: Initializer, recompute: bool = False):
        super().__init__("encoder", init)
        self.recompute = recompute
        self.blocks = [TransformerLayer(i, config, init) for i in range(config.num_hidden_layers)]

    def call(self, x, mask, keys):
        outputs = []
        for block in self.blocks:
            run = functools.partial(_run, block, mask, keys)
            x = tf.recompute_grad(run)(x) if self.recompute else run(x)
            outputs.append(x)
        return outputs


def _run(block: TransformerLayer, mask, keys, x):
    return block(x, mask, keys)


class EncoderOutput(NamedTuple):
    """What an encoder gives."""

    embeddings: tf.Tensor  # [B, L, E], after norm and dropout
    projected: tf.Tensor  # [B, L, D], what the first block reads
    layers: list[tf.Tensor]  # [B, L, D] of each block

    @property
    def sequence(self) -> tf.Tensor:
        """[B, L, D], the last block's output."""
        return self.layers[-1]

    @property
    def pooled(self) -> tf.Tensor:
        """[B, D], the last block's first position; ELECTRA has no pooling layer."""
        return self.layers[-1][:, 0]


class Encoder(NamedLayer):
    """A Transformer encoder over token ids.

    Args:
      name: the first part of its variables' names, "electra" or "generator".
      config: its sizes.
      embedding_size: E of its own tables; ignored where `embeddings` are shared.
      init: fresh values.
      embeddings: another encoder's embedding layer, shared (tied embeddings, ELECTRA section 2).
      compute_dtype: of the blocks.
      recompute: whether the backward pass computes the blocks again, to save memory.
    """

    def __init__(
        self,
        name: str,
        config: TransformerConfig,
        embedding_size: int,
        init: Initializer,
        embeddings: Embeddings | None = None,
        compute_dtype: str = "float32",
        recompute: bool = False,
    ):
        super().__init__(name, init)
        self.config = config
        self.activations = tf.as_dtype(compute_dtype)
        self.embeddings = embeddings or Embeddings(config, embedding_size, init)
        width = self.embeddings.embedding_size
        self.project = (
            Dense("embeddings_project", width, config.hidden_size, init) if (width != config.hidden_size) else None
        )
        self.encoder = LayerStack(config, init, recompute)

    def call(self, input_ids, input_mask, segment_ids, keys=None, attention_mask=None) -> EncoderOutput:
        """Encodes a batch.

        Args:
          input_ids, input_mask, segment_ids: [B, L] integers; the mask is 1 for real tokens.
          keys: [B] uint32 for dropout, None for none.
          attention_mask: [B, L, L], 1 where a query (axis 1) may see a key (axis 2); default: the real tokens.
        """
        if keys is not None:
            keys = randomness.fold(keys, randomness.salt_of(self.path))
        embedded = tf.cast(self.embeddings(input_ids, segment_ids, keys), self.activations)
        x = self.project(embedded) if self.project else embedded
        mask = input_mask[:, None, :] if attention_mask is None else attention_mask
        return EncoderOutput(embedded, x, self.encoder(x, mask, keys))


def gelu(x: tf.Tensor) -> tf.Tensor:
    """x times the standard normal's distribution function at x, exact (erf)."""
    return tf.nn.gelu(x, approximate=False)


def named_variables(layers: list[NamedLayer]) -> dict[str, tf.Variable]:
    """The plain TensorFlow variables of layers by their released names, each once."""
    return {variable.path: variable.value for layer in layers for variable in layer.variables}


def _batch_shape(x: tf.Tensor) -> list:
    """The leading axes of x, numbers where they are known."""
    dynamic = tf.shape(x)
    return [dynamic[i] if size is None else size for i, size in enumerate(x.shape[:-1])]
