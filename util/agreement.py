"""What must be the same on all hosts that train together, so that they compute the same thing. Needs no TensorFlow."""

import hashlib
import os
from importlib import metadata
from pathlib import Path
from platform import python_version
from typing import Any

from util import filesystem
from util.files import sha256_of

PACKAGES = ("tensorflow", "keras", "numpy")
ROOT = Path(__file__).parent.parent

# hparams that may be another on each host: where things lie there, and how it uses its devices
OWN = (
    "data_dir",
    "model_dir",
    "vocab_file",
    "results_txt",
    "pretrain_tfrecords",
    "eval_tfrecords",
    "init_checkpoint",  # the file that it means is compared
    "init_generator_checkpoint",
    "preprocessed_data_dir",
    "qa_eval_file",
    "qa_na_file",
    "qa_preds_file",
    "test_predictions",
    "num_processes",
    "log_examples",
    "use_tfrecords_if_existing",
    "require_gpu",
    "gpu_memory_growth",
)


def common_facts(hparams: dict[str, Any]) -> dict[str, Any]:
    """Hparams, versions and code, by what messages call them."""
    facts = {f"hparam {name}": value for name, value in hparams.items() if name not in OWN}
    facts["Python"] = python_version()
    facts |= {package: metadata.version(package) for package in PACKAGES}
    facts["this project's code"] = code_digest()
    return facts


def code_digest() -> str:
    """A hash of the modules that take part in training."""
    digest = hashlib.sha256()
    for path in sorted([*ROOT.glob("*.py"), *(p for room in _ROOMS for p in (ROOT / room).rglob("*.py"))]):
        digest.update(f"{path.relative_to(ROOT).as_posix()} {sha256_of(str(path))}\n".encode())
    return digest.hexdigest()[:12]


_ROOMS = ("model", "pretrain", "finetune", "util")


def checkpoint_fact(path: str | None) -> str:
    """A checkpoint that `find` gave, by name and content: its index holds checksums of all tensors."""
    if path is None:
        return "none"
    index = path + ".index"
    if filesystem.exists(index):
        return f"{os.path.basename(path)} ({sha256_of(index)[:12]})"
    return f"{os.path.basename(path)} ({filesystem.size(path)} bytes)"
