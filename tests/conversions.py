"""What tests of conversions share: running the command in this process, and what a checkpoint computes."""

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import numpy as np
import tensorflow as tf

import convert_checkpoint
from model import checkpoints
from model.config import TransformerConfig
from model.description import sizes_of
from model.modeling import Encoder, Initializer, NamedLayer, named_variables
from model.parts import GENERATOR_HEAD, MAIN_HEAD, generator_of, has_generator
from model.readers import Tensors, View, has, is_weight, kept, under
from pretrain.generators import MaskedLMHead
from pretrain.objectives import DiscriminatorHead
from util.errors import run_main

INIT = Initializer(0, 0.02)


def convert(*arguments: object) -> subprocess.CompletedProcess:
    """Runs convert_checkpoint.py in this process, which spares starting TensorFlow."""
    command, code = ["convert_checkpoint.py", *map(str, arguments)], None
    output, errors = io.StringIO(), io.StringIO()
    with mock.patch.object(sys, "argv", command), redirect_stdout(output), redirect_stderr(errors):
        try:
            run_main(convert_checkpoint.main)
        except SystemExit as leave:
            code = leave.code
    return subprocess.CompletedProcess(command, code, output.getvalue(), errors.getvalue())


def converted(source: object, to: Path, format: str, *more: object) -> Path:
    """Converts and checks that it went well."""
    result = convert("--from", source, "--to", to, "--format", format, *more)
    assert result.returncode == 0, result.stdout + result.stderr
    return to


def read(path: object) -> Tensors:
    """The tensors at a path."""
    return checkpoints.open_reader(checkpoints.find(str(path)))


def weights(path: object) -> dict[str, np.ndarray]:
    """The values of a model's variables at a path."""
    reader = read(path)
    return {name: reader[name] for name in reader.shapes if is_weight(name)}


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    """Whether two sets of tensors have the same names and the same bits."""
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and one[name].tobytes() == other[name].tobytes() for name in one
    )


def write(folder: Path, tensors: dict[str, np.ndarray], step: int = 0) -> Path:
    """Writes a TensorFlow checkpoint with its `checkpoint` file."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {name: tf.convert_to_tensor(value) for name, value in tensors.items()}
    checkpoints.write(str(folder / f"model.ckpt-{step}"), values)
    checkpoints.write_state(str(folder), [step])
    return folder


def network_layers(main: TransformerConfig, width: int, generator: TransformerConfig | None = None,
                   own_tables: bool = False, mlm: bool = True) -> list[NamedLayer]:  # fmt: skip
    """A discriminator with its head, and a generator beside it or (None) a masked language model's head on it.

    Args:
      width: E of the main network.
      own_tables: the generator has embeddings of its own.
      mlm: whether there is a masked language model at all.
    """
    encoder = Encoder("electra", main, width, INIT)
    layers = [encoder, DiscriminatorHead(main.hidden_size, INIT)]
    speaker = encoder
    if generator:
        shared = None if own_tables else encoder.embeddings
        speaker = Encoder("generator", generator, generator.hidden_size, INIT, shared)
        layers.append(speaker)
    if mlm:
        size = speaker.embeddings.embedding_size
        layers.append(MaskedLMHead(GENERATOR_HEAD, speaker.config.hidden_size, size, main.vocab_size, INIT))
    for layer in layers:
        layer.build()
    return layers


def outputs(reader: Tensors, ids: np.ndarray, mask: np.ndarray, segments: np.ndarray, heads: int | None,
            generator_heads: int | None = None) -> dict[str, np.ndarray]:  # fmt: skip
    """What all networks and heads of a checkpoint compute from a batch [B, L].

    Args:
      heads: num_attention_heads of the main network; `generator_heads`: of a generator beside it.
    """
    found: dict[str, np.ndarray] = {}
    inputs = [tf.constant(x) for x in (ids, mask, segments)]
    if has(reader, "electra/encoder"):
        main = View(kept(reader, under(reader, "electra", MAIN_HEAD)))
        encoder, sequence = _encode(main, inputs, heads)
        found["sequence"] = sequence.numpy()
        if has(reader, MAIN_HEAD):
            head = DiscriminatorHead(encoder.config.hidden_size, INIT)
            found["discriminator"] = _restored(head, main)(sequence).numpy()
        for task in {name.split("/")[1] for name in under(reader, "task_specific")}:
            for layer in ("dense", "dense_1"):
                kernel = f"task_specific/{task}/{layer}/kernel"
                if kernel in reader and reader.shapes[kernel][0] == encoder.config.hidden_size:
                    found[f"{task}/{layer}"] = sequence.numpy() @ reader[kernel] + reader[kernel[:-6] + "bias"]
    if has_generator(reader):
        alone = generator_of(reader, "electra")
        encoder, sequence = _encode(alone, inputs, generator_heads if has(reader, "generator") else heads)
        sizes = (encoder.config.hidden_size, encoder.embeddings.embedding_size, encoder.config.vocab_size)
        head = _restored(MaskedLMHead(GENERATOR_HEAD, *sizes, INIT), alone)
        found["generator"] = head(sequence, encoder.embeddings.word_embeddings).numpy()
    return found


def _encode(network: Tensors, inputs: list[tf.Tensor], heads: int | None) -> tuple[Encoder, tf.Tensor]:
    width = network.shapes["electra/embeddings/word_embeddings"][1]
    encoder = _restored(Encoder("electra", sizes_of(network, {}, heads), width, INIT), network)
    return encoder, encoder(*inputs).sequence


def _restored(layer: NamedLayer, reader: Tensors) -> NamedLayer:
    layer.build()
    report = checkpoints.restore(reader, named_variables([layer]))
    assert report.fresh == []
    return layer
