"""The files of checkpoints in a folder, found by name alone, without TensorFlow."""

import os
import re

from util import filesystem
from util.errors import UserError
from util.files import write_text

PREFIX = "model.ckpt"
SAVING = ".saving"  # the folder of half-written checkpoints
SAFETENSORS, SAFETENSORS_INDEX = "model.safetensors", "model.safetensors.index.json"  # of Hugging Face folders
_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle")


def find(path: str) -> str | None:
    """The prefix of the checkpoint at a path, or its file of weights (Hugging Face); None where a folder holds none.

    Args:
      path: a folder (its `checkpoint` file says which is the latest), a prefix (`.../model.ckpt-1000`) or one of a
        checkpoint's files.

    Raises:
      UserError: the path or a file of the checkpoint is missing, a folder does not tell which of several it is, or
        the weights are pickled.
    """
    if filesystem.isdir(path):
        return _latest(path) or _huggingface(path)
    if filesystem.isfile(path) and path.endswith(_PICKLES):
        raise _pickled(path)
    if filesystem.isfile(path) and path.endswith((".safetensors", SAFETENSORS_INDEX)):
        index = os.path.join(os.path.dirname(path), SAFETENSORS_INDEX)
        return index if "-of-" in os.path.basename(path) and filesystem.exists(index) else path
    if os.path.basename(path) == "checkpoint" and filesystem.isfile(path):
        return find(os.path.dirname(path) or ".")
    prefix = re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", path)
    if not filesystem.exists(prefix + ".index"):
        raise UserError(
            f"there is no checkpoint {path}: expected a folder with a `checkpoint` file or {SAFETENSORS}, or a prefix "
            f"such as {os.path.join(os.path.dirname(path), PREFIX)}-1000 with its .index and .data files"
        )
    return prefix


def _latest(folder: str) -> str | None:
    """The checkpoint that the `checkpoint` file names (the one beside it first: the folder may have been copied), else
    the newest whole one.

    A folder without either may hold one checkpoint under another name, as people pass them on.
    """
    state = os.path.join(folder, "checkpoint")
    if filesystem.exists(state):
        with filesystem.open(state, encoding="utf-8", errors="replace") as file:
            named = re.search(r'^model_checkpoint_path:\s*"(.*)"', file.read(), re.M)
        if named:
            for prefix in (os.path.join(folder, os.path.basename(named[1])), os.path.join(folder, named[1])):
                if filesystem.exists(prefix + ".index"):
                    return prefix
    whole = whole_checkpoints(folder)
    if whole:
        return os.path.join(folder, f"{PREFIX}-{whole[-1]}")
    others = sorted(name.removesuffix(".index") for name in filesystem.listdir(folder) if name.endswith(".index"))
    if len(others) > 1:
        raise UserError(
            f"the folder {folder} holds the checkpoints {', '.join(others)} and no `checkpoint` file that says which "
            f'to take; write one with the line model_checkpoint_path: "{others[-1]}"'
        )
    return os.path.join(folder, others[0]) if others else None


def _huggingface(folder: str) -> str | None:
    """The weights of a Hugging Face folder."""
    for name in (SAFETENSORS, SAFETENSORS_INDEX):
        if filesystem.exists(os.path.join(folder, name)):
            return os.path.join(folder, name)
    for name in sorted(filesystem.listdir(folder)):
        if name.startswith("pytorch_model") and name.endswith(_PICKLES):
            raise _pickled(os.path.join(folder, name))
    return None


def _pickled(path: str) -> UserError:
    return UserError(
        f"{path} holds pickled weights, which can run code when they are opened; they are not read here. Where you "
        "trust the file, save it anew as safetensors with PyTorch and transformers: "
        'AutoModel.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER), with the class that config.json names under '
        '"architectures"'
    )


def missing_shards(prefix: str) -> list[str]:
    """The data files of a checkpoint that are not there, as far as the names of the others tell."""
    folder, name = os.path.split(prefix)
    names = filesystem.listdir(folder or ".")
    shards = [re.fullmatch(re.escape(name) + r"\.data-\d+-of-(\d+)", other) for other in names]
    counts = {int(match[1]) for match in shards if match}
    if len(counts) != 1:
        return [] if counts else [f"{prefix}.data-00000-of-00001"]
    count = counts.pop()
    paths = (f"{prefix}.data-{i:05d}-of-{count:05d}" for i in range(count))
    return [path for path in paths if not filesystem.exists(path)]


def whole_checkpoints(folder: str) -> list[int]:
    """The steps of the complete checkpoints of a folder, rising."""
    names = set(filesystem.listdir(folder)) if filesystem.isdir(folder) else set()
    found = (re.fullmatch(re.escape(PREFIX) + r"-(\d+)\.index", name) for name in names)
    steps = [int(match[1]) for match in found if match]
    return sorted(step for step in steps if f"{PREFIX}-{step}.data-00000-of-00001" in names)


def step_in_name(prefix: str) -> int:
    """The step that the name of a checkpoint tells, as in model.ckpt-1000; 0 where it tells none."""
    match = re.search(r"-(\d+)$", prefix)
    return int(match[1]) if match else 0


def write_state(folder: str, steps: list[int]) -> None:
    """Writes the `checkpoint` file, which names the latest checkpoint and all that are kept."""
    lines = [f'model_checkpoint_path: "{PREFIX}-{steps[-1]}"']
    lines += [f'all_model_checkpoint_paths: "{PREFIX}-{step}"' for step in steps]
    write_text(os.path.join(folder, "checkpoint"), "\n".join(lines) + "\n")
