"""Sizes of the Transformers, without TensorFlow: what a network is before it is built."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from util.errors import UserError

# hidden size and number of layers (ELECTRA, table 6); heads and FFN follow from the hidden size
MODEL_SIZES = {
    "small": {"hidden_size": 256, "num_hidden_layers": 12},
    "base": {"hidden_size": 768, "num_hidden_layers": 12},
    "large": {"hidden_size": 1024, "num_hidden_layers": 24},
}
DEFAULT_EMBEDDING_SIZE = {"small": 128}  # elsewhere the embedding size is the hidden size
MOST_LAYERS = 1000  # the graph of more would take hours to trace
DEBUG_NETWORK = {"num_hidden_layers": 3, "hidden_size": 144, "intermediate_size": 576, "num_attention_heads": 4}


# fmt: off
@dataclass(frozen=True)
class TransformerConfig:
    """One Transformer encoder. Its field names are those of released configs and of `model_hparam_overrides`."""

    vocab_size: int                            # V, rows of the token embedding table
    hidden_size: int                           # D, width of the encoder
    num_hidden_layers: int
    num_attention_heads: int                   # H
    intermediate_size: int                     # width of the feed-forward network
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512         # the longest input
    type_vocab_size: int = 2                   # segments
    initializer_range: float = 0.02            # standard deviation of fresh weights

    # fmt: on

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    def validate(self, whose: str, change: str = "one of them in model_hparam_overrides") -> None:
        """Raises a `UserError` for sizes that no network can have: `whose` they are and what to `change`."""
        for name in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
                     "max_position_embeddings", "type_vocab_size"):
            if getattr(self, name) < 1:
                raise UserError(f"{whose}: {name} must be at least 1; got {getattr(self, name)}")
        if self.num_hidden_layers > MOST_LAYERS:
            raise UserError(f"{whose}: num_hidden_layers must be at most {MOST_LAYERS}; got {self.num_hidden_layers}")
        if self.hidden_size % self.num_attention_heads:
            raise UserError(f"{whose}: hidden_size {self.hidden_size} is not divisible by num_attention_heads "
                            f"{self.num_attention_heads}; change {change}")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"{whose}: {name} must be in [0, 1); got {getattr(self, name)}")
        if self.hidden_act != "gelu":
            raise UserError(f'{whose}: hidden_act must be "gelu"; got "{self.hidden_act}"')


def transformer_config(model_size: str, vocab_size: int, overrides: dict[str, Any],
                       forced: dict[str, Any] | None = None) -> TransformerConfig:
    """The encoder of a model size: heads = max(1, hidden // 64) and FFN = 4 * hidden unless overridden.

    Args:
      model_size: a key of `MODEL_SIZES`.
      vocab_size: V.
      overrides: `model_hparam_overrides`, any field of `TransformerConfig`.
      forced: fields that win over the overrides (the network of debug runs).

    Raises:
      UserError: for an unknown size or field.
    """
    if model_size not in MODEL_SIZES:
        raise UserError(f'model_size must be one of {", ".join(MODEL_SIZES)}; got "{model_size}"')
    fields = {field.name: field.type for field in dataclasses.fields(TransformerConfig)}
    chosen = {**overrides, **(forced or {})}
    for name, value in chosen.items():
        if name not in fields:
            raise UserError(f'unknown field "{name}" in model_hparam_overrides; the fields are {", ".join(fields)}')
        kinds = {int: int, float: (int, float), str: str}[fields[name]]
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise UserError(f'model_hparam_overrides: "{name}" must be of type {fields[name].__name__}; got {value!r}')
    sizes = {"vocab_size": vocab_size, **MODEL_SIZES[model_size], **chosen}
    derived = {"num_attention_heads": max(1, sizes["hidden_size"] // 64), "intermediate_size": 4 * sizes["hidden_size"]}
    return TransformerConfig(**{**derived, **sizes})


def generator_config(config: TransformerConfig, layers: float, hidden_size: float) -> TransformerConfig:
    """The generator beside a discriminator: both fractions rounded half to even, heads and FFN from its hidden size.

    Args:
      config: the discriminator.
      layers: `generator_layers`, the fraction of its layers.
      hidden_size: `generator_hidden_size`, the fraction of its hidden size.
    """
    hidden = round(config.hidden_size * hidden_size)
    return dataclasses.replace(config, hidden_size=hidden, num_hidden_layers=round(config.num_hidden_layers * layers),
                               intermediate_size=4 * hidden, num_attention_heads=max(1, hidden // 64))
