"""convert_checkpoint.py: what it writes, says and refuses."""

import json
import os
import pickle
import shutil
import struct
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from model.config import TransformerConfig, generator_config
from model.heads import from_hugging_face, to_hugging_face
from model.modeling import named_variables
from model.safetensors_files import SafetensorsReader, Tensor, write_safetensors
from tests.conversions import convert, converted, network_layers, read, same, weights, write
from tests.training_runs import NETWORK, pretrain_here, read_checkpoint
from util.errors import UserError

MAIN = TransformerConfig(60, 32, 2, 2, 128, max_position_embeddings=48)
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(50))]


def tensors_of(tied: bool = True, **more) -> dict[str, np.ndarray]:
    """Random weights of an ELECTRA with an embedding size of 16."""
    small = generator_config(MAIN, 0.5, 0.5)
    random = np.random.default_rng(3)
    variables = named_variables(network_layers(MAIN, 16, small, own_tables=not tied))
    return {n: random.normal(size=v.shape).astype(np.float32) for n, v in variables.items()} | more


@pytest.fixture(scope="module")
def released(tmp_path_factory) -> Path:
    """A released-style checkpoint with its vocabulary, and the attention heads told by a config beside it."""
    folder = write(tmp_path_factory.mktemp("released") / "electra", tensors_of(global_step=np.int64(12)), 12)
    (folder / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
    (folder / "bert_config.json").write_text(json.dumps({"num_attention_heads": 2, "hidden_dropout_prob": 0.2}))
    return folder


@pytest.fixture(scope="module")
def face(released, tmp_path_factory) -> Path:
    """The same as two Hugging Face folders."""
    return converted(released, tmp_path_factory.mktemp("face") / "out", "huggingface", "--part", "both")


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def fails(tmp_path: Path, *arguments: object) -> str:
    """Converts to a new folder: one message, exit code 2, and nothing written. Gives the message."""
    before = files(tmp_path)
    if "--inspect" not in arguments:
        arguments = (*arguments, "--to", tmp_path / "never", "--format", "project")
    result = convert(*arguments)
    assert result.returncode == 2 and result.stderr.count("error: ") == 1, result.stdout + result.stderr
    assert files(tmp_path) == before
    return result.stderr


# ---- what is written ------------------------------------------------------------------------------------------------


def test_folders(released, face, tmp_path):
    """Each format has the files that its readers look for."""
    assert files(face) == ["discriminator", "generator"]
    assert files(face / "generator") == [
        "README.md", "config.json", "model.safetensors", "special_tokens_map.json", "tokenizer_config.json",
        "vocab.txt"]  # fmt: skip
    assert (face / "generator" / "vocab.txt").read_text().split() == TOKENS
    project = converted(released, tmp_path / "project", "project")
    checkpoint = ["checkpoint", "model.ckpt-12.data-00000-of-00001", "model.ckpt-12.index"]
    assert files(project) == [*checkpoint[:1], "hparams.json", *checkpoint[1:], "tokenizer_config.json",
                              "transformer_configs.json", "vocab.txt"]  # fmt: skip
    tf1 = converted(project, tmp_path / "tf1", "tf1")
    assert files(tf1) == ["README.md", *checkpoint, "tokenizer_config.json", "transformer_configs.json", "vocab.txt"]
    assert "Training steps: 12" in (tf1 / "README.md").read_text()
    assert same(weights(tf1), weights(released)) and read(tf1).step == 12


def test_hugging_face_names_and_orientation(released, face):
    """Kernels are transposed, tables are not, the tied output layer is left out."""
    ours = weights(released)
    discriminator = load_file(face / "discriminator" / "model.safetensors")
    generator = load_file(face / "generator" / "model.safetensors")
    for name, value in ours.items():
        if name.startswith("electra/") and name.endswith("kernel"):
            theirs = name.replace("/kernel", "/weight").replace("layer_", "layer/").replace("/", ".")
            np.testing.assert_array_equal(discriminator[theirs], value.T)
    table = ours["electra/embeddings/word_embeddings"]
    for network in (discriminator, generator):
        np.testing.assert_array_equal(network["electra.embeddings.word_embeddings.weight"], table)
    np.testing.assert_array_equal(
        discriminator["discriminator_predictions.dense_prediction.weight"],
        ours["discriminator_predictions/dense_1/kernel"].T,
    )
    np.testing.assert_array_equal(generator["generator_lm_head.bias"], ours["generator_predictions/output_bias"])
    assert "generator_lm_head.weight" not in generator
    assert len(discriminator) == sum(name.startswith(("electra", "discriminator")) for name in ours)
    config = json.loads((face / "discriminator" / "config.json").read_text())
    assert config["num_attention_heads"] == 2 and config["hidden_dropout_prob"] == 0.2
    assert config["embedding_size"] == 16 and config["max_position_embeddings"] == 48


@pytest.mark.parametrize("tied", [True, False])
def test_two_folders_become_one_checkpoint(tied, tmp_path):
    tensors = tensors_of(tied)
    source = write(tmp_path / "tf1", tensors)
    both = converted(source, tmp_path / "face", "huggingface", "--part", "both", "--num-attention-heads", 2)
    for first, second in (("discriminator", "generator"), ("generator", "discriminator")):
        back = converted(both / first, tmp_path / f"{first} first", "project", "--from", both / second)
        assert same(weights(back), tensors)
    hparams = json.loads((back / "hparams.json").read_text())
    assert hparams["untied_generator_embeddings"] is not tied and hparams["generator_hidden_size"] == 0.5
    assert hparams["model_hparam_overrides"]["num_attention_heads"] == 2


def test_two_folders_of_different_models(face, tmp_path):
    other = tensors_of()
    other["electra/embeddings/word_embeddings"] += 1
    small = TransformerConfig(60, 32, 1, 1, 128, max_position_embeddings=48)
    generator = network_layers(MAIN, 16, small)
    random = np.random.default_rng(9)
    tensors = {n: random.normal(size=v.shape).astype(np.float32) for n, v in named_variables(generator).items()}
    source = converted(write(tmp_path / "tf1", tensors), tmp_path / "face", "huggingface", "--part", "generator")
    message = fails(tmp_path, "--from", face / "discriminator", "--from", source)
    assert "not of one model: their embeddings differ" in message


def test_parts(released, face, tmp_path):
    ours = weights(released)
    main = converted(released, tmp_path / "main", "tf1", "--part", "discriminator")
    assert same(weights(main), {n: v for n, v in ours.items() if not n.startswith("generator")})
    speaker = converted(released, tmp_path / "generator", "tf1", "--part", "generator")
    expected = {n: v for n, v in ours.items() if n.startswith(("generator", "electra/embeddings/"))}
    assert same(weights(speaker), expected)
    assert same(weights(converted(face / "generator", tmp_path / "from face", "tf1")), expected)
    assert "holds no fine-tuned head" in fails(tmp_path, "--from", released, "--part", "finetuned")
    assert "holds no generator" in fails(tmp_path, "--from", main, "--part", "generator")


def test_slots_travel_where_they_are_wanted(tmp_path):
    tensors = tensors_of()
    slots = {f"{name}/{slot}": value + 1 for name, value in tensors.items() for slot in ("adam_m", "adam_v")}
    state = {"global_step": np.int64(4), "training/skipped_steps": np.int64(1)}
    source = write(tmp_path / "source", tensors | slots | state, 4)
    everything = {*tensors, *slots, *state}
    assert read(converted(source, tmp_path / "project", "project")).shapes.keys() == everything
    assert read(converted(source, tmp_path / "tf1", "tf1")).shapes.keys() == {*tensors, "global_step"}
    with_slots = converted(source, tmp_path / "slots", "tf1", "--slots")
    assert read(with_slots).shapes.keys() == everything - {"training/skipped_steps"}


def test_a_run_goes_on_from_its_converted_folder(training_data):
    """A model folder that went through a conversion resumes to the very bits."""
    steps = {"num_train_steps": 6, "save_checkpoints_steps": 6}
    assert pretrain_here(training_data, "source", steps).returncode == 0
    models = training_data / "models"
    converted(models / "source", models / "travelled", "project")
    for model in ("source", "travelled"):
        result = pretrain_here(training_data, model, steps | {"num_train_steps": 9})
        assert result.returncode == 0 and "training from step 6 to 9" in result.stdout, result.stderr
    assert same(*(read_checkpoint(training_data, model, 9) for model in ("source", "travelled")))


def test_overwriting(released, tmp_path):
    target = converted(released, tmp_path / "out", "huggingface")
    (target / "mine.txt").write_text("stays")
    result = convert("--from", released, "--to", target, "--format", "tf1")
    assert result.returncode == 2 and "is not empty" in result.stderr and "--overwrite" in result.stderr
    assert "model.safetensors" in files(target) and "checkpoint" not in files(target)
    converted(released, target, "tf1", "--overwrite")
    assert {"mine.txt", "checkpoint"} < set(files(target)) and "model.safetensors" not in files(target)
    (tmp_path / "empty").mkdir()
    converted(released, tmp_path / "empty", "tf1")
    assert files(tmp_path) == ["empty", "out"]


def test_large_models_are_written_in_shards(tmp_path):
    random = np.random.default_rng(0)
    values = {f"t{i}": random.normal(size=(i + 1, 8)).astype(np.float32) for i in range(6)}
    tensors = [Tensor(name, list(value.shape), lambda value=value: value) for name, value in values.items()]
    write_safetensors(str(tmp_path), tensors, shard_bytes=250)
    shards = [name for name in files(tmp_path) if name.endswith(".safetensors")]
    assert len(shards) == 4 and shards[0] == "model-00001-of-00004.safetensors"
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(value.nbytes for value in values.values())
    reader = SafetensorsReader(str(tmp_path / "model.safetensors.index.json"))
    for name, value in values.items():
        np.testing.assert_array_equal(reader[name], value)
        np.testing.assert_array_equal(load_file(tmp_path / index["weight_map"][name])[name], value)


# ---- what is read ---------------------------------------------------------------------------------------------------


def bert_folder(folder: Path, prefix: str = "bert.", **changes) -> tuple[Path, dict[str, np.ndarray]]:
    """A BERT model as transformers saves it, of one layer, with pooler, masked LM head and the tied table twice."""
    random = np.random.default_rng(1)
    shapes = {"embeddings.word_embeddings.weight": (60, 8), "embeddings.position_embeddings.weight": (20, 8),
              "embeddings.token_type_embeddings.weight": (2, 8), "embeddings.LayerNorm.weight": (8,),
              "embeddings.LayerNorm.bias": (8,), "pooler.dense.weight": (8, 8), "pooler.dense.bias": (8,)}  # fmt: skip
    for name, sizes in {"attention.self.query": (8, 8), "attention.self.key": (8, 8), "attention.self.value": (8, 8),
                        "attention.output.dense": (8, 8), "intermediate.dense": (32, 8),
                        "output.dense": (8, 32)}.items():  # fmt: skip
        shapes |= {f"encoder.layer.0.{name}.weight": sizes, f"encoder.layer.0.{name}.bias": sizes[:1]}
    for name in ("attention.output.LayerNorm", "output.LayerNorm"):
        shapes |= {f"encoder.layer.0.{name}.weight": (8,), f"encoder.layer.0.{name}.bias": (8,)}
    tensors = {prefix + name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    if prefix:
        head = {"bias": (60,), "transform.dense.weight": (8, 8), "transform.dense.bias": (8,),
                "transform.LayerNorm.weight": (8,), "transform.LayerNorm.bias": (8,)}  # fmt: skip
        tensors |= {f"cls.predictions.{n}": random.normal(size=s).astype(np.float32) for n, s in head.items()}
        tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].copy()
    tensors |= changes.pop("tensors", {})
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = {"model_type": "bert", "vocab_size": 60, "hidden_size": 8, "num_hidden_layers": 1,
              "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 20}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config | changes))
    return folder, tensors


@pytest.mark.parametrize("prefix", ["bert.", ""])
def test_bert(prefix, tmp_path):
    folder, theirs = bert_folder(tmp_path / "bert", prefix)
    result = convert("--from", folder, "--to", tmp_path / "out", "--format", "project")
    assert result.returncode == 0 and f"left out, no part of ELECTRA: {prefix}pooler.dense.bias" in result.stdout
    ours = weights(tmp_path / "out")
    assert len(ours) == len(theirs) - 2 - bool(prefix)
    np.testing.assert_array_equal(
        ours["electra/encoder/layer_0/output/dense/kernel"], theirs[f"{prefix}encoder.layer.0.output.dense.weight"].T
    )
    if prefix:
        dense = theirs["cls.predictions.transform.dense.weight"]
        np.testing.assert_array_equal(ours["generator_predictions/dense/kernel"], dense.T)
    hparams = json.loads((tmp_path / "out" / "hparams.json").read_text())
    assert hparams["model_hparam_overrides"]["num_attention_heads"] == 2


def test_other_float_types(face, tmp_path):
    """Half precision is widened, exactly."""
    for kind in (np.float16, ml_dtypes.bfloat16):
        folder = tmp_path / np.dtype(kind).name
        shutil.copytree(face / "discriminator", folder)
        narrow = {n: v.astype(kind) for n, v in load_file(folder / "model.safetensors").items()}
        save_file(narrow, folder / "model.safetensors", {"format": "pt"})
        ours = weights(converted(folder, tmp_path / f"{folder.name} out", "tf1"))
        table = narrow["electra.embeddings.word_embeddings.weight"].astype(np.float32)
        np.testing.assert_array_equal(ours["electra/embeddings/word_embeddings"], table)


def test_vocabulary_of_tokenizer_json(face, tmp_path):
    folder = shutil.copytree(face / "discriminator", tmp_path / "face")
    (folder / "vocab.txt").unlink()
    (folder / "tokenizer_config.json").unlink()
    model = {"type": "WordPiece", "vocab": {token: i for i, token in enumerate(TOKENS)}}
    normalizer = {"lowercase": False, "strip_accents": None}
    (folder / "tokenizer.json").write_text(json.dumps({"model": model, "normalizer": normalizer}))
    out = converted(folder, tmp_path / "out", "project")
    assert (out / "vocab.txt").read_text().split() == TOKENS
    settings = json.loads((out / "tokenizer_config.json").read_text())
    assert settings == {"do_lower_case": False, "strip_accents": False}


@pytest.mark.parametrize("outputs", [1, 3, 16])
def test_classification_head(outputs):
    """gelu(z) - gelu(-z) is z: what Hugging Face's two layers compute, in float64, and the way back."""
    random = np.random.default_rng(outputs)
    head = {"dense/kernel": random.normal(size=(32, outputs)).astype(np.float32),
            "dense/bias": random.normal(size=outputs).astype(np.float32)}  # fmt: skip
    theirs = to_hugging_face("mine", "classification", head)
    x = random.normal(size=(5, 32)) * 10
    first = tf.nn.gelu(x @ theirs["classifier.dense.weight"].T + theirs["classifier.dense.bias"])
    logits = first @ theirs["classifier.out_proj.weight"].T + theirs["classifier.out_proj.bias"]
    np.testing.assert_allclose(logits, x @ head["dense/kernel"] + head["dense/bias"], rtol=1e-12, atol=1e-12)
    back, taken = from_hugging_face(theirs, "ElectraForSequenceClassification")
    assert same(back, head) and set(taken) == set(theirs)
    theirs["classifier.dense.weight"][-1, -1] = 1e-3  # fine-tuned there: no shape here any more
    assert from_hugging_face(theirs, "ElectraForSequenceClassification") == ({}, [])
    with pytest.raises(UserError, match="room for half the hidden size, 16"):
        to_hugging_face("many", "classification", {"dense/kernel": np.zeros((32, 17)), "dense/bias": np.zeros(17)})


def test_inspecting(released, face):
    result = convert("--inspect", released, "--json")
    found = json.loads(result.stdout)
    assert result.returncode == 0 and found["format"] == "tf1" and found["step"] == 12
    assert found["discriminator"]["num_attention_heads"] == 2 and found["generator"]["hidden_size"] == 16
    assert found["heads"] == ["discriminator_predictions", "generator_predictions"]
    assert found["parameters"] == sum(value.size for value in weights(released).values())
    assert found["hparams"]["generator_hidden_size"] == 0.5 and not found["slots"] and not found["not_finite"]
    for path in (face / "generator", face / "generator" / "model.safetensors"):
        text = convert("--inspect", path).stdout
        assert "huggingface, step 12" in text and "generator_predictions" in text and "embedding size:     16" in text


# ---- what is refused ------------------------------------------------------------------------------------------------


class Bomb:
    """Unpickled, it writes a file."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors", "model.pt"])
def test_a_pickle_is_never_opened(name, face, tmp_path):
    folder = tmp_path / "bad"
    folder.mkdir()
    shutil.copy(face / "discriminator" / "config.json", folder)
    (folder / name).write_bytes(pickle.dumps(Bomb(tmp_path / "exploded")))
    for path in (folder, folder / name):
        if path.name == name or name != "model.pt":
            for flag in ("--from", "--inspect"):
                message = fails(tmp_path, flag, path)
                assert name in message and ("as safetensors" in message)
    assert not (tmp_path / "exploded").exists()
    pickle.loads((folder / name).read_bytes()).close()  # noqa: S301  the test can fail
    assert (tmp_path / "exploded").exists()


LIES = {
    "a larger shape": lambda header: header["a"].update(shape=[1000, 1000]),
    "offsets beyond the end": lambda header: header["a"].update(data_offsets=[0, 10**9]),
    "a huge tensor": lambda header: header["a"].update(shape=[2**40, 2**20], data_offsets=[0, 2**62]),
    "overlapping tensors": lambda header: header["b"].update(data_offsets=[0, 16]),
    "a negative size": lambda header: header["a"].update(shape=[-4]),
    "an unknown type": lambda header: header["a"].update(dtype="F33"),
}


@pytest.mark.parametrize("what", [*LIES, "a header longer than the file", "no JSON", "cut short", "empty"])
def test_safetensors_that_lie(what, face, tmp_path):
    folder = tmp_path / "bad"
    folder.mkdir()
    shutil.copy(face / "discriminator" / "config.json", folder)
    tensor = {"dtype": "F32", "shape": [4]}
    header = {"a": {**tensor, "data_offsets": [0, 16]}, "b": {**tensor, "data_offsets": [16, 32]}}
    LIES.get(what, dict)(header)
    text = b"{" * 64 if what == "no JSON" else json.dumps(header).encode()
    length = 10**12 if what == "a header longer than the file" else len(text)
    content = struct.pack("<Q", length) + text + bytes(20 if what == "cut short" else 32)
    (folder / "model.safetensors").write_bytes(b"" if what == "empty" else content)
    message = fails(tmp_path, "--from", folder)
    assert f"cannot read {folder / 'model.safetensors'} as safetensors" in message


def test_missing_shards(released, face, tmp_path):
    """Of both formats; the missing file is named."""
    folder = tmp_path / "face"
    folder.mkdir()
    shutil.copy(face / "discriminator" / "config.json", folder)
    values = load_file(face / "discriminator" / "model.safetensors")
    tensors = [Tensor(name, list(value.shape), lambda value=value: value) for name, value in values.items()]
    write_safetensors(str(folder), tensors, shard_bytes=30_000)
    assert same(weights(folder), weights(face / "discriminator"))
    one = sorted(folder.glob("*-of-*"))[1]
    assert same(weights(one), weights(face / "discriminator"))  # a shard stands for all of them
    one.unlink()
    assert f"shards that are not beside it: {one}" in fails(tmp_path, "--from", folder)

    ours, parts = weights(released), []
    for part in range(2):
        names = sorted(ours)[part::2]
        parts.append(str(tmp_path / f"part{part}"))
        tf.raw_ops.SaveV2(prefix=parts[-1], tensor_names=names, shape_and_slices=[""] * len(names),
                          tensors=[ours[name] for name in names])  # fmt: skip
    prefix = tmp_path / "model.ckpt-3"
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=str(prefix))
    assert same(weights(prefix), ours)
    Path(f"{prefix}.data-00001-of-00002").unlink()
    assert f"lacks {prefix}.data-00001-of-00002" in fails(tmp_path, "--from", prefix)


def test_a_data_file_cut_short(released, tmp_path):
    folder = shutil.copytree(released, tmp_path / "cut")
    data = folder / "model.ckpt-12.data-00000-of-00001"
    os.truncate(data, data.stat().st_size // 2)
    assert "cut short or damaged" in fails(tmp_path, "--from", folder)


def test_a_moved_checkpoint_is_found_beside_its_file(released, tmp_path):
    folder = shutil.copytree(released, tmp_path / "moved")
    (folder / "checkpoint").write_text('model_checkpoint_path: "/somewhere/else/model.ckpt-12"\n')
    for path in (folder, folder / "checkpoint"):
        assert same(weights(path), weights(released))


def test_values_that_are_not_finite(tmp_path):
    """A conversion refuses them, an inspection names them."""
    tensors = tensors_of()
    tensors["electra/encoder/layer_1/output/dense/bias"][3] = np.nan
    source = write(tmp_path / "nan", tensors)
    message = fails(tmp_path, "--from", source)
    assert "NaN or infinite values in 1 variables, electra/encoder/layer_1/output/dense/bias first" in message
    assert "NaN or infinite:    electra/encoder/layer_1/output/dense/bias" in convert("--inspect", source).stdout


BAD_MODELS = {
    "another activation": ({"hidden_act": "gelu_new"}, "hidden_act is 'gelu_new', ELECTRA computes 'gelu'"),
    "relative positions": ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
    "another family": ({"model_type": "gpt2"}, 'model_type must be "electra" or "bert"; got "gpt2"'),
    "no number of heads": ({"num_attention_heads": None}, "num_attention_heads must be a whole number above 0"),
    "heads that do not divide": ({"num_attention_heads": 3}, "not divisible by num_attention_heads 3"),
    "more layers than there are": ({"num_hidden_layers": 2}, "lacks 16 tensors of its encoder"),
    "an output layer of its own": (
        {"tensors": {"cls.predictions.decoder.weight": np.ones((60, 8), np.float32)}},
        "the output layer cls.predictions.decoder.weight is not the token table",
    ),
}


@pytest.mark.parametrize("what", BAD_MODELS)
def test_models_that_electra_cannot_be(what, tmp_path):
    changes, message = BAD_MODELS[what]
    folder, _ = bert_folder(tmp_path / "bert", **changes)
    assert message in fails(tmp_path, "--from", folder)


def test_heads_of_ones_own_tasks(tmp_path):
    """What shapes do not tell is asked for."""
    head = {"dense/kernel": np.ones((32, 3), np.float32), "dense/bias": np.arange(3, dtype=np.float32)}
    tensors = {name: value for name, value in tensors_of().items() if name.startswith("electra/")}
    tensors |= {f"task_specific/{task}/{name}": value for task in ("mine", "other") for name, value in head.items()}
    source = write(tmp_path / "tf1", tensors)
    out = ("--from", source, "--format", "huggingface", "--to")
    for flags, message in (
        ([], "name one of the checkpoint's tasks with --task: mine, other"),
        (["--task", "third"], "name one of the checkpoint's tasks"),
        (["--task", "mine"], "pass --kind classification, regression, tagging or qa"),
        (["--task", "mine", "--kind", "qa"], "joint_prediction"),
    ):
        result = convert(*out, tmp_path / "no", *flags)
        assert result.returncode == 2 and message in result.stderr and files(tmp_path) == ["tf1"]
    for kind, name in (("tagging", "TokenClassification"), ("classification", "SequenceClassification")):
        folder = converted(source, tmp_path / kind, "huggingface", "--task", "mine", "--kind", kind)
        config = json.loads((folder / "config.json").read_text())
        assert config["architectures"] == [f"ElectraFor{name}"] and len(config["id2label"]) == 3
        back = weights(converted(folder, tmp_path / f"{kind} back", "tf1"))
        assert same(back, {name: value for name, value in tensors.items() if "/other/" not in name})


def test_labels_of_finetuned_models(tmp_path):
    """What fine-tuning notes of a task beside its weights reaches config.json, and travels with other formats."""
    noted = {
        "topics": {"kind": "classification", "labels": ["art", "law", "sport"], "multi_label": False},
        "tags": {"kind": "classification", "labels": ["new", "old"], "multi_label": True},
        "names": {"kind": "tagging", "labels": ["B-LOC-deriv", "O"], "scheme": "iob1"},
        "scores": {"kind": "regression", "range": [-1, 5]},
    }
    tensors = {name: value for name, value in tensors_of().items() if name.startswith("electra/")}
    for task, told in noted.items():
        count = len(told.get("labels", "1"))
        tensors[f"task_specific/{task}/dense/kernel"] = np.ones((32, count), np.float32)
        tensors[f"task_specific/{task}/dense/bias"] = np.zeros(count, np.float32)
    source = write(tmp_path / "trial", tensors)
    (source / "tasks.json").write_text(json.dumps({"tasks": noted | {"another": {"kind": "qa"}}, "data": {}}))
    for format in ("tf1", "project"):
        source = converted(source, tmp_path / format, format)
        assert json.loads((source / "tasks.json").read_text()) == {"tasks": noted}
    problems = {"topics": "single_label", "tags": "multi_label", "names": None, "scores": "regression"}
    for task, told in noted.items():
        folder = converted(source, tmp_path / task, "huggingface", "--task", task)
        config = json.loads((folder / "config.json").read_text())
        labels = told.get("labels", ["LABEL_0"])
        assert config["id2label"] == {str(i): label for i, label in enumerate(labels)}
        assert config["label2id"] == {label: i for i, label in enumerate(labels)}
        assert (config.get("problem_type") or "").removesuffix("_classification") == (problems[task] or "")
    assert "The output is 0 for -1 and 1 for 5." in (tmp_path / "scores" / "README.md").read_text()
    assert "names (tagging), scores (regression)" in convert("--inspect", source).stdout
    (source / "tasks.json").write_text('{"tasks": ["topics"]}')
    result = convert("--from", source, "--to", tmp_path / "no", "--format", "huggingface", "--task", "topics")
    assert result.returncode == 2 and "tasks.json is damaged" in result.stderr and not (tmp_path / "no").exists()


def test_a_bert_that_cannot_be_a_generator(tmp_path):
    folder, _ = bert_folder(tmp_path / "bert")
    message = fails(tmp_path, "--from", folder, "--part", "generator")
    assert "num_attention_heads is 2" in message and "--part discriminator" in message


def test_arguments(released, tmp_path):
    for arguments, message in (
        (["--from", tmp_path / "nothing"], "there is no checkpoint"),
        (["--from", released, "--from", released, "--from", released], "more than twice"),
        (["--from", released, "--from", released, "--part", "generator"], "takes one --from"),
        (["--from", tmp_path], "is a folder without a checkpoint"),
        (["--from", released, "--num-attention-heads", 5], "not divisible by num_attention_heads 5"),
        (["--from", released, "--vocab-file", tmp_path / "none.txt"], "cannot read the vocabulary"),
    ):
        assert message in fails(tmp_path, *arguments)
    (tmp_path / "long.txt").write_text("\n".join(TOKENS + [f"x{i}" for i in range(9)]))
    assert "64 pieces, the token table 60" in fails(tmp_path, "--from", released, "--vocab-file", tmp_path / "long.txt")
    result = convert("--from", released, "--to", tmp_path / "long.txt", "--format", "tf1")
    assert result.returncode == 2 and "is a file" in result.stderr
    assert "are needed" in convert("--from", released).stderr


# ---- pre-training from it -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pretrained(training_data) -> Path:
    """Hugging Face folders of a run's networks."""
    result = pretrain_here(training_data, "pretrained", {"num_train_steps": 2})
    assert result.returncode == 0, result.stderr
    source = training_data / "models" / "pretrained"
    return converted(source, training_data / "pretrained_face", "huggingface", "--part", "both")


def test_pretraining_starts_from_two_folders(training_data, pretrained):
    sources = {"init_checkpoint": str(pretrained / "discriminator"),
               "init_generator_checkpoint": str(pretrained / "generator")}  # fmt: skip
    result = pretrain_here(training_data, "started", sources, {"num_train_steps": 1, "learning_rate": 0.0})
    assert result.returncode == 0, result.stderr
    assert "fresh" not in result.stdout and "not used: electra/* (5)" in result.stdout
    start, end = (read_checkpoint(training_data, *run) for run in (("pretrained", 2), ("started", 1)))
    ours = {name: value for name, value in end.items() if not name.startswith(("training/", "global_step"))}
    ours = {name: value for name, value in ours.items() if "/adam_" not in name}
    assert same(ours, {name: start[name] for name in ours}) and int(end["global_step"]) == 1


def test_pretraining_starts_from_a_generator_alone(training_data, pretrained):
    """Its embeddings are the shared ones then."""
    source = {"init_generator_checkpoint": str(pretrained / "generator")}
    result = pretrain_here(training_data, "generator alone", source, {"num_train_steps": 1, "learning_rate": 0.0})
    assert result.returncode == 0, result.stderr
    start, end = (read_checkpoint(training_data, *run) for run in (("pretrained", 2), ("generator alone", 1)))
    for name in start:
        if not name.startswith("training/") and "/adam_" not in name and name != "global_step":
            generators = name.startswith(("generator", "electra/embeddings/"))
            trivial = name.endswith(("bias", "beta", "gamma"))
            assert trivial or generators == (start[name].tobytes() == end[name].tobytes()), name


def test_pretraining_with_a_longer_position_table(training_data, pretrained):
    """The further rows are fresh, and that is said."""
    source = {"init_checkpoint": str(pretrained / "discriminator"), "num_train_steps": 1, "learning_rate": 0.0}
    grown = {"model_hparam_overrides": {**NETWORK, "max_position_embeddings": 520}}
    result = pretrain_here(training_data, "grown", source, grown)
    assert result.returncode == 0, result.stderr
    assert "fresh, beyond the checkpoint's rows: electra/embeddings/position_embeddings[512:]" in result.stdout
    table, name = read_checkpoint(training_data, "grown", 1), "electra/embeddings/position_embeddings"
    before = weights(pretrained / "discriminator")[name]
    np.testing.assert_array_equal(table[name][:512], before)
    assert len(np.unique(table[name], axis=0)) == 520


WRONG = {
    "vocab_size": ({"vocab_size": 401}, "change vocab_size"),
    "embedding_size": ({"embedding_size": 24}, "change embedding_size"),
    "model_size": ({"model_hparam_overrides": {**NETWORK, "hidden_size": 64}}, "change model_size"),
    "layers": ({"model_hparam_overrides": {**NETWORK, "hidden_size": 48}}, "change model_size"),
    "attention heads": ({"model_hparam_overrides": {**NETWORK, "num_attention_heads": 4}},
                        "set num_attention_heads in model_hparam_overrides to 2"),  # fmt: skip
    "shorter positions": ({"model_hparam_overrides": {**NETWORK, "max_position_embeddings": 64}},
                          "change max_position_embeddings"),  # fmt: skip
}


@pytest.mark.parametrize("what", WRONG)
def test_pretraining_of_another_size(what, training_data, pretrained):
    changes, message = WRONG[what]
    result = pretrain_here(training_data, "wrong", {"init_checkpoint": str(pretrained / "discriminator")}, changes)
    assert result.returncode == 2 and message in result.stderr, result.stderr
    assert not (training_data / "models" / "wrong" / "hparams.json").exists()


def test_a_generator_checkpoint_needs_a_generator(training_data, pretrained):
    source = {"init_generator_checkpoint": str(pretrained / "generator")}
    result = pretrain_here(training_data, "uniform", source, {"uniform_generator": True})
    assert result.returncode == 2 and "needs a generator with weights of its own" in result.stderr
