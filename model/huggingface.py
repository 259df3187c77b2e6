"""Hugging Face model folders: config.json beside the weights, read and written. Needs no TensorFlow."""

import os
from typing import Any

import numpy as np

from model.config import TransformerConfig
from model.heads import from_hugging_face
from model.names import REDUNDANT, TIED, Name, names, released_names
from model.readers import Tensors
from model.safetensors_files import SHARD_BYTES, SafetensorsReader, Tensor, write_safetensors
from util.errors import UserError
from util.files import read_json, write_json
from util.log import say

CONFIG = "config.json"
STEP_KEY, TASK_KEY = "electra_step", "electra_task"  # what this project adds to config.json
_SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
_EXPECTED = {  # what the encoder here computes; the first value is that of a config without the field
    "hidden_act": ("gelu", "gelu_python"),
    "position_embedding_type": ("absolute",),
    "is_decoder": (False,),
}


class HuggingFaceReader:
    """A Hugging Face ELECTRA or BERT model as `model.readers.Tensors`; its network is called electra/.

    Args:
      path: a .safetensors file or index, with config.json beside it.

    Raises:
      UserError: unreadable, of another kind of model, or computed in another way than here.
    """

    kind = "huggingface"

    def __init__(self, path: str):
        self.prefix = path
        self.config = read_config(os.path.dirname(path))
        self._files = SafetensorsReader(path)
        layout = self.config["model_type"]
        self._names = released_names(self._files.shapes, self.config["num_hidden_layers"], layout)
        if "electra/embeddings/word_embeddings" not in self._names:
            some = ", ".join(sorted(self._files.shapes)[:3])
            raise UserError(f"{path} holds no {layout} encoder under the names of Hugging Face; it has {some}, ...")
        self._head, taken = self._read_head()
        self.shapes = {name: self._shape(row) for name, row in self._names.items()}
        self.shapes.update({name: list(value.shape) for name, value in self._head.items()})
        known = {row.hugging_face for row in self._names.values()}.union(taken)
        self.left_out = sorted(n for n in self._files.shapes if n not in known and not n.endswith(REDUNDANT))
        self.step = int(self.config.get(STEP_KEY, 0))
        self._check_layers()
        self._check_tied(TIED[layout])

    @property
    def is_generator(self) -> bool:
        """Whether it was saved as an ELECTRA masked language model."""
        return self.config["model_type"] == "electra" and "generator_predictions/output_bias" in self

    def __contains__(self, name: str) -> bool:
        return name in self.shapes

    def __getitem__(self, name: str) -> np.ndarray:
        if name in self._head:
            return self._head[name]
        row = self._names[name]
        value = self._files[row.hugging_face]
        return np.ascontiguousarray(value.T) if row.transposed else value

    def _shape(self, row: Name) -> list[int]:
        shape = self._files.shapes[row.hugging_face]
        return shape[::-1] if row.transposed else shape

    def _read_head(self) -> tuple[dict[str, np.ndarray], list[str]]:
        architecture = (self.config.get("architectures") or [""])[0]
        head, taken = from_hugging_face(self._files, architecture)
        task = self.config.get(TASK_KEY, "finetuned")
        return {f"task_specific/{task}/{name}": np.ascontiguousarray(value) for name, value in head.items()}, taken

    def _check_layers(self) -> None:
        rows = names(self.config["num_hidden_layers"], self.config["model_type"])
        missing = [
            row.released for row in rows if row.released.startswith("electra/encoder") and row.released not in self
        ]
        if missing:
            raise UserError(f"{self.prefix} lacks {len(missing)} tensors of its encoder, {missing[0]} first")

    def _check_tied(self, output: str) -> None:
        table = self._names["electra/embeddings/word_embeddings"].hugging_face
        if "generator_predictions/output_bias" not in self or output not in self._files.shapes:
            return
        if not np.array_equal(self._files[output], self._files[table]):
            raise UserError(
                f"{self.prefix}: the output layer {output} is not the token table, to which ELECTRA's output layer is "
                "tied; the model cannot be taken over whole. Save its encoder alone and import that"
            )


def read_config(folder: str) -> dict[str, Any]:
    """config.json of a Hugging Face folder, checked for what the encoder here can be.

    Raises:
      UserError: another kind of model, activation or position embedding, or a size that is missing.
    """
    path = os.path.join(folder, CONFIG)
    config = read_json(path, "config of the Hugging Face model, expected beside its weights,")
    layout = config.get("model_type") if isinstance(config, dict) else None
    if layout not in ("electra", "bert"):
        raise UserError(f'{path}: model_type must be "electra" or "bert"; got "{layout}"')
    for name in _SIZES:
        if not isinstance(config.get(name), int) or config[name] < 1:
            raise UserError(f"{path}: {name} must be a whole number above 0; got {config.get(name)!r}")
    for name, expected in _EXPECTED.items():
        if config.get(name, expected[0]) not in expected:
            raise UserError(f"{path}: {name} is {config[name]!r}, ELECTRA computes {expected[0]!r}")
    if config.get("layer_norm_eps", 1e-12) != 1e-12:
        epsilon = config["layer_norm_eps"]
        say(f"note: {path} has layer_norm_eps {epsilon}, ELECTRA has 1e-12: outputs differ in their last digits")
    return config


def write_model(
    folder: str,
    network: Tensors,
    sizes: TransformerConfig,
    architecture: str,
    head: dict[str, np.ndarray] | None = None,
    more: dict[str, Any] | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Writes config.json and the weights of one network.

    Args:
      folder: exists.
      network: its encoder as electra/..., with the pre-training heads that are wanted.
      sizes: of the encoder.
      architecture: the name of the Hugging Face class.
      head: a fine-tuned head's tensors by their Hugging Face names.
      more: fields for config.json.
    """
    tensors = [
        Tensor(
            row.hugging_face,
            network.shapes[row.released][:: -1 if row.transposed else 1],
            lambda row=row: network[row.released].T if row.transposed else network[row.released],
        )
        for row in names(sizes.num_hidden_layers)
        if row.released in network
    ]
    tensors += [Tensor(name, list(value.shape), lambda value=value: value) for name, value in (head or {}).items()]
    write_json(os.path.join(folder, CONFIG), {**_config(network, sizes, architecture), **(more or {})})
    write_safetensors(folder, tensors, shard_bytes)


def _config(network: Tensors, sizes: TransformerConfig, architecture: str) -> dict[str, Any]:
    embedding_size = network.shapes["electra/embeddings/word_embeddings"][1]
    return {
        "architectures": [architecture],
        "model_type": "electra",
        **{name: getattr(sizes, name) for name in (*_SIZES, "hidden_act", "max_position_embeddings")},
        "embedding_size": embedding_size,
        "hidden_dropout_prob": sizes.hidden_dropout_prob,
        "attention_probs_dropout_prob": sizes.attention_probs_dropout_prob,
        "type_vocab_size": sizes.type_vocab_size,
        "initializer_range": sizes.initializer_range,
        "layer_norm_eps": 1e-12,
        "position_embedding_type": "absolute",
        "pad_token_id": 0,
        "tie_word_embeddings": True,
        "dtype": "float32",
        STEP_KEY: network.step,
    }
