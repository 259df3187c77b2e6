"""What must be the same on all hosts that train together, so that they compute the same thing. Needs no TensorFlow."""

import contextlib
import hashlib
import os
import time
import uuid
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from platform import python_version
from typing import Any

from util import filesystem
from util.cluster import Cluster
from util.errors import UserError
from util.files import sha256_of, writing
from util.leaving import tidied
from util.log import say

PACKAGES = ("tensorflow", "keras", "numpy")
MARK = "seen_by_all_workers"
MARK_SECONDS = 60.0  # as long as NFS may take to notice that a folder or file is there now
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


def check_shared(cluster: Cluster, folder: str) -> None:
    """Whether all workers see the folder that the chief writes in, by a mark that it makes there for a moment.

    Raises:
      UserError: this worker does not see the mark.
      Disagreement: it sees one that another run left.
    """
    if len(cluster.workers) == 1:
        return
    path = os.path.join(folder, MARK)
    with _mark(path) if cluster.is_chief else contextlib.nullcontext():
        cluster.agree({})  # the mark is there
        if not cluster.is_chief:
            _wait_for(path)
        with filesystem.open(path, encoding="utf-8") as file:
            cluster.agree({f"the file {MARK} in the model folder": file.read()})


@contextlib.contextmanager
def _mark(path: str) -> Iterator[None]:
    def remove() -> None:
        if filesystem.exists(path):
            filesystem.remove(path)

    try:
        with tidied(remove):
            with writing(path):
                filesystem.makedirs(os.path.dirname(path))
                with filesystem.open(path, "w", encoding="utf-8") as file:
                    file.write(uuid.uuid4().hex)
            yield
    finally:
        remove()


def _wait_for(path: str) -> None:
    deadline = time.monotonic() + MARK_SECONDS
    if not filesystem.exists(path):
        say(f"waiting until what the chief writes in the model folder is here, too: {MARK_SECONDS:.0f} s at most")
    while not filesystem.exists(path):
        if time.monotonic() > deadline:
            raise UserError(
                f"what the chief writes in the model folder is not to be seen here: there is no {path} after "
                f"{MARK_SECONDS:.0f} s; let model_dir or --data-dir on all hosts be one folder that all of them see"
            )
        time.sleep(0.2)
