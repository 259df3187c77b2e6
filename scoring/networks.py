"""The networks of a checkpoint as functions of padded batches of ids.

Shapes: B batch, L length, D hidden, V vocabulary.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from model.checkpoints import open_reader, restore
from model.config import TransformerConfig
from model.description import embedding_size, fields_beside, main_of, networks
from model.modeling import Encoder, Initializer, NamedLayer, named_variables
from model.parts import GENERATOR_HEAD, MAIN_HEAD, TOWERS, generator_of, has_generator
from model.readers import Tensors, View, has, kept, under
from pretrain.generators import head_of
from pretrain.objectives import DiscriminatorHead
from scoring.source import SHORTEST, Source
from util.errors import UserError
from util.log import say

INIT = Initializer(0, 0.02)  # of weights that are restored right away


class Network:
    """A function of ids [B, L], lengths [B] and perhaps more arrays [B], compiled once for each L."""

    def __init__(self, function: Callable[..., Any], more: int = 0):
        self._function, self._more = tf.function(function, autograph=False), more
        self._compiled: dict[int, Callable] = {}

    def __call__(self, ids: np.ndarray, lengths: np.ndarray, *more: np.ndarray) -> Any:
        length = ids.shape[1]
        if length not in self._compiled:
            vector = tf.TensorSpec([None], tf.int32)
            specs = [tf.TensorSpec([None, length], tf.int32), *[vector] * (1 + self._more)]
            self._compiled[length] = self._function.get_concrete_function(*specs)
        result = self._compiled[length](*map(tf.constant, (ids, lengths, *more)))
        return tf.nest.map_structure(lambda tensor: tensor.numpy(), result)


class Model:
    """The networks in a checkpoint.

    Args:
      source: the checkpoint and what lies beside it.

    Attributes:
      longest: L that it takes.

    Raises:
      UserError: unreadable, or the vocabulary or the length does not fit.
    """

    def __init__(self, source: Source):
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)
        self.source, self.reader = source, open_reader(source.path)
        self._sizes = networks(self.reader, heads=source.heads)
        sizes = self._sizes["discriminator"] or self._sizes["generator"]
        if sizes is None:
            raise UserError(f"the checkpoint {self.reader.prefix} holds no encoder (electra/ or generator/)")
        vocab, rows = source.tokenizer.vocabulary, sizes["vocab_size"]
        if len(vocab) > rows:
            raise UserError(
                f"the vocabulary {vocab.path} has {len(vocab)} pieces, the token table {rows} rows; name the model's "
                "own with --vocab-file"
            )
        self.longest = self._longest(sizes["max_position_embeddings"])
        if source.heads is None and "num_attention_heads" not in fields_beside(self.reader):
            say(
                f"note: nothing beside {self.reader.prefix} tells the number of attention heads; hidden size / 64 = "
                f"{sizes['num_attention_heads']} is assumed, --num-attention-heads says otherwise"
            )

    def _longest(self, positions: int) -> int:
        asked = self.source.max_seq_length
        if asked is not None and asked > positions:
            raise UserError(f"--max-seq-length {asked} is over the model's position table of {positions}")
        return asked or max(SHORTEST, min(positions, self.source.trained_length or positions))

    # ---- what there is ---------------------------------------------------------------------------------------------

    @property
    def is_electric(self) -> bool:
        """Whether the main head gives energies: the notes say so, or Electric's towers lie beside it."""
        noted = self.source.is_electric
        return has(self.reader, MAIN_HEAD) and (has(self.reader, *TOWERS) if noted is None else noted)

    @property
    def is_discriminator(self) -> bool:
        """Whether the main head tells replaced tokens."""
        return has(self.reader, MAIN_HEAD) and not self.is_electric

    @property
    def is_masked_lm(self) -> bool:
        """Whether it can fill [MASK] in: ELECTRA's generator, or a masked language model."""
        return has_generator(self.reader)

    @property
    def description(self) -> str:
        """What it is, for messages."""
        what = {
            "Electric": self.is_electric,
            "a discriminator": self.is_discriminator,
            "a masked language model": self.is_masked_lm and not has(self.reader, "generator"),
            "a generator": self.is_masked_lm and has(self.reader, "generator"),
        }
        return " and ".join(name for name, is_so in what.items() if is_so) or "an encoder without a pre-training head"

    # ---- networks --------------------------------------------------------------------------------------------------

    def main_logits(self) -> Network:
        """[B, L] float32, what the main head gives: Electric's energies E(x)_t, or logits of "replaced"."""
        encoder = self._main_encoder()
        head = DiscriminatorHead(encoder.config.hidden_size, INIT)
        _restore(head, View(kept(self.reader, under(self.reader, MAIN_HEAD))))
        return Network(lambda ids, lengths: head(_encode(encoder, ids, lengths).sequence))

    def hidden_states(self, layer: int | None = None) -> Network:
        """[B, L, D] float32 of one layer: 0 is what the first block reads, None the last block's output.

        Raises:
          UserError: there is no such layer.
        """
        encoder = self._main_encoder() if has(self.reader, "electra/encoder") else self._generator()[0]
        count = encoder.config.num_hidden_layers
        if layer is not None and not 0 <= layer <= count:
            raise UserError(f"--layer must be from 0 (what the first layer reads) to {count}; got {layer}")

        def states(ids, lengths):
            output = _encode(encoder, ids, lengths)
            return [output.projected, *output.layers][count if layer is None else layer]

        return Network(states)

    def token_log_probabilities(self) -> Network:
        """[B] float32: the masked language model's log p of tokens [B] at places [B]; takes both after the lengths."""
        logits = self._masked_lm()

        def log_probabilities(ids, lengths, places, tokens):
            return -tf.nn.sparse_softmax_cross_entropy_with_logits(tokens, logits(ids, lengths, places))

        return Network(log_probabilities, 2)

    def fillers(self, count: int) -> Network:
        """The `count` likeliest tokens [B, count] at places [B] and their probabilities [B, count]."""
        logits, pieces = self._masked_lm(), len(self.source.tokenizer.vocab)

        def best(ids, lengths, places):
            found = tf.math.top_k(tf.nn.softmax(logits(ids, lengths, places))[:, :pieces], min(count, pieces))
            return found.indices, found.values

        return Network(best, 1)

    def _masked_lm(self) -> Callable[..., tf.Tensor]:
        encoder, network = self._generator()
        head = head_of(GENERATOR_HEAD, encoder, INIT)
        _restore(head, View(kept(network, under(network, GENERATOR_HEAD))))

        def logits(ids, lengths, places):
            states = _encode(encoder, ids, lengths).sequence
            states = tf.gather(states, places[:, None], batch_dims=1)  # [B, 1, D]
            return head(states, encoder.embeddings.word_embeddings)[:, 0]  # [B, V]

        return logits

    def _main_encoder(self) -> Encoder:
        return _encoder(main_of(self.reader), self._sizes["discriminator"])

    def _generator(self) -> tuple[Encoder, Tensors]:
        network = generator_of(self.reader, "electra")
        return _encoder(network, self._sizes["generator"]), network


def _encoder(network: Tensors, sizes: dict[str, Any]) -> Encoder:
    """The encoder that is called electra/ in a network."""
    encoder = Encoder("electra", TransformerConfig(**sizes), embedding_size(network), INIT)
    _restore(encoder, network)
    return encoder


def _encode(encoder: Encoder, ids: tf.Tensor, lengths: tf.Tensor):
    mask = tf.cast(tf.range(ids.shape[1]) < lengths[:, None], tf.int32)
    return encoder(ids, mask, tf.zeros_like(ids))


def _restore(layer: NamedLayer, reader: Tensors) -> None:
    layer.build()
    if fresh := restore(reader, named_variables([layer])).fresh:
        raise UserError(f"the checkpoint {reader.prefix} lacks {', '.join(fresh[:3])}" + ", ..." * (len(fresh) > 3))
