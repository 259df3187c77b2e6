"""Exports as transformers loads them, and its models as they are imported here. Needs PyTorch: see README.md.

The PyTorch side runs in the interpreter that ELECTRA_TORCH_PYTHON names, or in this one where it has PyTorch.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from model.config import TransformerConfig, generator_config, transformer_config
from model.modeling import named_variables
from model.readers import has
from model.tokenization import FullTokenizer
from tests.conversions import converted, network_layers, outputs, read, write
from tests.parity.test_checkpoint_parity import recorded_heads

pytestmark = pytest.mark.interop
CLOSE = {"atol": 1e-4, "rtol": 0}
# name: main network, embedding size
SHAPES = {
    "small": (transformer_config("small", 3000, {"num_hidden_layers": 4}), 128),
    "base": (transformer_config("base", 3000, {"num_hidden_layers": 3}), 768),
    "hidden is embedding": (TransformerConfig(3000, 64, 2, 2, 256), 64),
}


@pytest.fixture(scope="session")
def pytorch():
    """Runs tests/pytorch_side.py."""
    python = os.environ.get("ELECTRA_TORCH_PYTHON")
    if python is None and all(map(importlib.util.find_spec, ("torch", "transformers"))):
        python = sys.executable
    assert python, "set ELECTRA_TORCH_PYTHON to a Python with what requirements-interop.txt lists"

    def run(*arguments: object) -> None:
        command = [python, str(Path(__file__).with_name("pytorch_side.py")), *map(str, arguments)]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert result.returncode == 0, result.stderr

    return run


@pytest.fixture
def compare(pytorch, tmp_path):
    """Compares what a class computes from a folder with ours, at real tokens."""

    def run(architecture: str, folder: Path, ours: dict[str, np.ndarray], batch: list[np.ndarray]) -> None:
        np.savez(tmp_path / "in.npz", ids=batch[0], mask=batch[1], segments=batch[2])
        pytorch("logits", architecture, folder, tmp_path / "in.npz", tmp_path / "out.npz")
        theirs = np.load(tmp_path / "out.npz")
        for name, value in ours.items():
            assert np.ptp(value) > 0.01  # something that could differ
            if value.shape[:2] == batch[1].shape:
                theirs_there, value = theirs[name][batch[1] == 1], value[batch[1] == 1]
            else:
                theirs_there = theirs[name]
            np.testing.assert_allclose(theirs_there, value, **CLOSE, err_msg=f"{architecture}: {name}")

    return run


def batch(vocabulary: int, length: int = 40) -> list[np.ndarray]:
    random = np.random.default_rng(2)
    mask = np.array([[1] * length, [1] * (length - 11) + [0] * 11], np.int32)
    ids = random.integers(5, vocabulary, mask.shape).astype(np.int32) * mask
    return [ids, mask, np.where(np.arange(length) > length // 2, 1, 0).astype(np.int32) * mask]


@pytest.mark.parametrize("shape", SHAPES)
def test_pretrained_networks(shape, tmp_path, compare):
    main, width = SHAPES[shape]
    generator = generator_config(main, 1.0, 1.0 if main.hidden_size == 64 else 1 / 3)
    random = np.random.default_rng(1)
    tensors = {
        name: variable.numpy() + random.normal(0, 0.04, variable.shape).astype(np.float32)
        for name, variable in named_variables(network_layers(main, width, generator)).items()
    }
    source = write(tmp_path / "tf1", tensors, 7)
    folder = converted(source, tmp_path / "face", "huggingface", "--part", "both")
    inputs = batch(main.vocab_size)
    ours = outputs(read(source), *inputs, None)
    compare("ElectraForPreTraining", folder / "discriminator", {"logits": ours["discriminator"]}, inputs)
    compare("ElectraModel", folder / "discriminator", {"last_hidden_state": ours["sequence"]}, inputs)
    compare("ElectraForMaskedLM", folder / "generator", {"logits": ours["generator"]}, inputs)


@pytest.mark.golden_cases("model*/finetune/*/model.ckpt-0.index")
def test_fine_tuned_heads(case, tmp_path, compare):
    source, heads = read(case), recorded_heads(case)
    inputs = batch(source.shapes["electra/embeddings/word_embeddings"][0], 20)
    ours = outputs(source, *inputs, heads)
    for task in sorted({name.split("/")[1] for name in source.shapes if name.startswith("task_specific")}):
        if has(source, f"task_specific/{task}/qa_hidden"):
            continue  # no Hugging Face head conditions the end on the start
        flags = ("--task", task, "--num-attention-heads", heads)
        folder = converted(case, tmp_path / task, "huggingface", *flags)
        architecture = json.loads((folder / "config.json").read_text())["architectures"][0]
        dense = ours[f"{task}/dense"]
        if architecture == "ElectraForQuestionAnswering":
            expected = {"start_logits": dense[..., 0], "end_logits": ours[f"{task}/dense_1"][..., 0]}
        else:
            expected = {"logits": dense[:, 0] if architecture == "ElectraForSequenceClassification" else dense}
        compare(architecture, folder, expected, inputs)


TEXTS = ["The quick brown fox.", "Déjà vu, ÉTÉ naïve Straße", "Zürich 1,000€ — “quoted” 東京", "a\tb\u00a0c  d", ""]
PIECES = """the The qu ##ick b ##rown fox . deja déjà Déjà vu , ete été naive naïve É ##TÉ stra ##ß ##e Stra zurich
    zürich Zürich 1 000 € — quoted 東 京 a c d “ ”""".split()


@pytest.mark.parametrize(
    ("lower", "strip"), [(True, True), (True, False), (False, False)], ids=["uncased", "accents kept", "cased"]
)
def test_tokenizer(lower, strip, tmp_path, pytorch):
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PIECES]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    main = TransformerConfig(len(tokens), 32, 1, 1, 128)
    tensors = {name: v.numpy() for name, v in named_variables(network_layers(main, 32, mlm=False)).items()}
    source = write(tmp_path / "tf1", tensors)
    flags = (f"--{'do' if lower else 'no'}-lower-case", f"--{'do' if strip else 'no'}-strip-accents")
    folder = converted(source, tmp_path / "face", "huggingface", "--vocab-file", tmp_path / "vocab.txt", *flags)
    (tmp_path / "texts.json").write_text(json.dumps(TEXTS))
    pytorch("tokens", folder, tmp_path / "texts.json", tmp_path / "ids.json")
    ours = FullTokenizer(str(tmp_path / "vocab.txt"), lower, strip)
    cls, sep = tokens.index("[CLS]"), tokens.index("[SEP]")
    expected = [[cls, *ours.encode(text), sep] for text in TEXTS]
    assert json.loads((tmp_path / "ids.json").read_text()) == expected
    assert len({token for ids in expected for token in ids}) > 15


IMPORTED = ("ElectraForPreTraining", "ElectraForMaskedLM", "BertForMaskedLM", "BertModel")


@pytest.mark.parametrize("architecture", IMPORTED)
def test_import(architecture, tmp_path, pytorch, compare):
    """Models that transformers saved, sharded, give the same here, all of them but BERT's pooler."""
    sizes = {"vocab_size": 900, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 3,
             "intermediate_size": 192, "max_position_embeddings": 64}  # fmt: skip
    more = {"embedding_size": 32} if architecture.startswith("Electra") else {}
    pytorch("save", architecture, tmp_path / "saved", json.dumps(sizes | more), "100KB")
    assert len(list((tmp_path / "saved").glob("*.safetensors"))) > 1
    back = converted(tmp_path / "saved", tmp_path / "project", "project", "--part", "discriminator")
    inputs = batch(900)
    ours = outputs(read(back), *inputs, 3)
    name = {"ElectraForPreTraining": "discriminator", "BertModel": "sequence"}.get(architecture, "generator")
    compare(architecture, tmp_path / "saved",
            {"last_hidden_state" if name == "sequence" else "logits": ours[name]}, inputs)  # fmt: skip


