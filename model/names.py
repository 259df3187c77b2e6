"""The one table of names: a variable's released name, its name in Hugging Face models, and whether it is transposed.

A released name is the variable's path here too. Kernels are [in, out] here and [out, in] in PyTorch.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Name(NamedTuple):
    """One tensor in both worlds."""

    released: str
    hugging_face: str
    transposed: bool = False


# kind of a module: what it holds, as (released, Hugging Face, transposed)
_DENSE = (("/kernel", ".weight", True), ("/bias", ".bias", False))
_NORM = (("/gamma", ".weight", False), ("/beta", ".bias", False))
_TABLE = (("", ".weight", False),)
_VECTOR = (("", "", False),)

_ENCODER = (
    ("embeddings/word_embeddings", "embeddings.word_embeddings", _TABLE),
    ("embeddings/token_type_embeddings", "embeddings.token_type_embeddings", _TABLE),
    ("embeddings/position_embeddings", "embeddings.position_embeddings", _TABLE),
    ("embeddings/LayerNorm", "embeddings.LayerNorm", _NORM),
    ("embeddings_project", "embeddings_project", _DENSE),
)
_BLOCK = (
    ("attention/self/query", "attention.self.query", _DENSE),
    ("attention/self/key", "attention.self.key", _DENSE),
    ("attention/self/value", "attention.self.value", _DENSE),
    ("attention/output/dense", "attention.output.dense", _DENSE),
    ("attention/output/LayerNorm", "attention.output.LayerNorm", _NORM),
    ("intermediate/dense", "intermediate.dense", _DENSE),
    ("output/dense", "output.dense", _DENSE),
    ("output/LayerNorm", "output.LayerNorm", _NORM),
)
_HEADS = {
    "electra": (
        ("discriminator_predictions/dense", "discriminator_predictions.dense", _DENSE),
        ("discriminator_predictions/dense_1", "discriminator_predictions.dense_prediction", _DENSE),
        ("generator_predictions/dense", "generator_predictions.dense", _DENSE),
        ("generator_predictions/LayerNorm", "generator_predictions.LayerNorm", _NORM),
        ("generator_predictions/output_bias", "generator_lm_head.bias", _VECTOR),
    ),
    "bert": (
        ("generator_predictions/dense", "cls.predictions.transform.dense", _DENSE),
        ("generator_predictions/LayerNorm", "cls.predictions.transform.LayerNorm", _NORM),
        ("generator_predictions/output_bias", "cls.predictions.bias", _VECTOR),
    ),
}
# Hugging Face names of what is stored twice there: the output layer's weight is the token table
TIED = {"electra": "generator_lm_head.weight", "bert": "cls.predictions.decoder.weight"}
# and of what holds nothing learned, or a second copy of something in the table
REDUNDANT = ("embeddings.position_ids", "embeddings.token_type_ids", "cls.predictions.decoder.bias", *TIED.values())


def names(layers: int, layout: str = "electra", prefix: str | None = None) -> list[Name]:
    """Every tensor that a network and its pre-training heads may have.

    Args:
      layers: number of Transformer blocks.
      layout: "electra" or "bert", how the Hugging Face model calls its parts.
      prefix: of the encoder's Hugging Face names; default: the layout's, with a dot.
    """
    prefix = f"{layout}." if prefix is None else prefix
    blocks = [
        (f"encoder/layer_{i}/{ours}", f"encoder.layer.{i}.{theirs}", kind)
        for i in range(layers)
        for ours, theirs, kind in _BLOCK
    ]
    rows = [(f"electra/{ours}", prefix + theirs, kind) for ours, theirs, kind in (*_ENCODER, *blocks)]
    return [
        Name(ours + a, theirs + b, transposed)
        for ours, theirs, kind in (*rows, *_HEADS[layout])
        for a, b, transposed in kind
    ]


def released_names(present: Mapping[str, object], layers: int, layout: str) -> dict[str, Name]:
    """The tensors of a Hugging Face model by their released names.

    Args:
      present: the model's tensors by their Hugging Face names, with the encoder's prefix or (an encoder saved alone)
        without it.
      layers, layout: as in `names`.
    """
    prefix = f"{layout}." if any(name.startswith(f"{layout}.") for name in present) else ""
    return {name.released: name for name in names(layers, layout, prefix) if name.hugging_face in present}
