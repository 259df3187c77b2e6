"""The files of checkpoints in a folder, found by name alone, without TensorFlow."""

import os
import re

from util.errors import UserError
from util.files import write_text

PREFIX = "model.ckpt"
SAVING = ".saving"  # the folder of half-written checkpoints


def find(path: str) -> str | None:
    """The prefix of the checkpoint at a path; None where a folder holds none.

    Args:
      path: a folder (its `checkpoint` file says which is the latest), a prefix (`.../model.ckpt-1000`) or one of a
        checkpoint's files.

    Raises:
      UserError: the path or a file of the checkpoint is missing, or a folder does not tell which of several it is.
    """
    if os.path.isdir(path):
        return _latest(path)
    prefix = re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", path)
    if not os.path.exists(prefix + ".index"):
        raise UserError(
            f"there is no checkpoint {path}: expected a folder with a `checkpoint` file, or a prefix such as "
            f"{os.path.join(os.path.dirname(path), PREFIX)}-1000 with its .index and .data files"
        )
    return prefix


def _latest(folder: str) -> str | None:
    """The checkpoint that the `checkpoint` file names (the one beside it first: the folder may have been copied), else
    the newest whole one.

    A folder without either may hold one checkpoint under another name, as people pass them on.
    """
    state = os.path.join(folder, "checkpoint")
    if os.path.exists(state):
        with open(state, encoding="utf-8") as file:
            named = re.search(r'^model_checkpoint_path:\s*"(.*)"', file.read(), re.M)
        if named:
            for prefix in (os.path.join(folder, os.path.basename(named[1])), os.path.join(folder, named[1])):
                if os.path.exists(prefix + ".index"):
                    return prefix
    whole = whole_checkpoints(folder)
    if whole:
        return os.path.join(folder, f"{PREFIX}-{whole[-1]}")
    others = sorted(name.removesuffix(".index") for name in os.listdir(folder) if name.endswith(".index"))
    if len(others) > 1:
        raise UserError(
            f"the folder {folder} holds the checkpoints {', '.join(others)} and no `checkpoint` file that says which "
            f'to take; write one with the line model_checkpoint_path: "{others[-1]}"'
        )
    return os.path.join(folder, others[0]) if others else None


def whole_checkpoints(folder: str) -> list[int]:
    """The steps of the complete checkpoints of a folder, rising."""
    names = set(os.listdir(folder)) if os.path.isdir(folder) else set()
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
