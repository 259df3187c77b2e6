"""What hosts that train together must have alike."""

import dataclasses
import shutil

from configure_finetuning import FinetuningConfig
from configure_pretraining import PretrainingConfig
from util import agreement
from util.agreement import OWN, checkpoint_fact, code_digest, common_facts


def test_hparams_of_ones_own_are_hparams():
    names = {field.name for config in (PretrainingConfig, FinetuningConfig) for field in dataclasses.fields(config)}
    assert set(OWN) <= names


def test_facts():
    facts = common_facts({"learning_rate": 0.1, "data_dir": "/here"})
    assert facts["hparam learning_rate"] == 0.1 and "hparam data_dir" not in facts
    assert {"Python", "tensorflow", "keras", "numpy", "this project's code"} <= facts.keys()


def test_code_is_compared_by_content(tmp_path, monkeypatch):
    before = code_digest()
    shutil.copytree(agreement.ROOT / "util", tmp_path / "util")
    monkeypatch.setattr(agreement, "ROOT", tmp_path)
    copied = code_digest()
    assert copied == code_digest() != before
    with open(tmp_path / "util" / "log.py", "a", encoding="utf-8") as file:
        file.write("\n")
    assert code_digest() != copied


def test_checkpoints_are_compared_by_name_and_content(tmp_path):
    assert checkpoint_fact(None) == "none"
    prefix = tmp_path / "model.ckpt-7"
    facts = []
    for content in (b"a", b"b"):
        prefix.with_name("model.ckpt-7.index").write_bytes(content)
        facts.append(checkpoint_fact(str(prefix)))
    assert facts[0] != facts[1] and all(fact.startswith("model.ckpt-7 (") for fact in facts)
    (tmp_path / "model.safetensors").write_bytes(b"1234")
    assert checkpoint_fact(str(tmp_path / "model.safetensors")) == "model.safetensors (4 bytes)"
