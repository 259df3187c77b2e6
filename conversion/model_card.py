"""The README of an exported checkpoint."""

from typing import Any

import numpy as np

from conversion.companions import DATA, HPARAMS
from model.readers import Tensors, is_weight

_RUN = (
    "train_batch_size",
    "max_seq_length",
    "mask_prob",
    "learning_rate",
    "num_train_steps",
    "gen_weight",
    "disc_weight",
)
_USE = {
    "ElectraForPreTraining": "logits above 0 mark tokens that look replaced",
    "ElectraForMaskedLM": "fills [MASK] in",
    "ElectraModel": "the encoder alone; it has no pooler, the first position stands for the text",
    "ElectraForSequenceClassification": "one row of logits a text",
    "ElectraForTokenClassification": "a word's logits are those of its first piece",
    "ElectraForQuestionAnswering": "start and end logits; mask the question's positions before taking the best",
}


def model_card(
    reader: Tensors, networks: dict[str, Any], notes: dict[str, Any], architecture: str | None = None
) -> str:
    """The text: what it is, sizes, steps, hparams and data as far as they are known.

    Args:
      reader: the checkpoint that it was made from.
      networks: sizes, from `model.description.networks`.
      notes: the model folder's JSON by file name.
      architecture: the Hugging Face class; None: a TensorFlow checkpoint.
    """
    counts = [int(np.prod(shape)) for name, shape in reader.shapes.items() if is_weight(name)]
    lines = ["# ELECTRA", ""]
    if architecture:
        lines += [f"`{architecture}.from_pretrained(FOLDER)`: {_USE[architecture]}.", ""]
    else:
        lines += ["A TensorFlow checkpoint under the names of the released ones.", ""]
    lines += [f"Training steps: {reader.step or 'not recorded'}. Parameters of all networks: {sum(counts):,}.", ""]
    lines += ["| network | layers | hidden | heads | FFN | vocabulary | positions |", "|---|---|---|---|---|---|---|"]
    fields = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size",
              "max_position_embeddings")  # fmt: skip
    for name in ("discriminator", "generator"):
        if networks[name]:
            lines.append(f"| {name} | " + " | ".join(str(networks[name][field]) for field in fields) + " |")
    lines += ["", f"Embedding size {networks['embedding_size']}.", ""]
    run, data = notes.get(HPARAMS, {}), notes.get(DATA, {})
    if known := [f"{name} {run[name]}" for name in _RUN if name in run]:
        lines += ["Pre-trained with " + ", ".join(known) + ".", ""]
    if "examples" in data:
        lines += [f"Pre-training data: {data['examples']:,} examples in {data['shards']} shards; SHA-256 of the "
                  f"vocabulary {data['vocab_sha256']}.", ""]  # fmt: skip
        lines += [f"- manifest {sha256}" for sha256 in data.get("manifests", {}).values()]
    return "\n".join(lines).rstrip() + "\n"
