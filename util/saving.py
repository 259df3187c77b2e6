"""When checkpoints are written: in the background, the last few kept, leftovers of a killed run removed."""

import os
from concurrent.futures import Future, ThreadPoolExecutor

import tensorflow as tf

from model import checkpoints
from util import filesystem
from util.errors import UserError
from util.leaving import tidied


class CheckpointSaver:
    """Writes a folder's checkpoints, one at a time, while training goes on.

    Args:
      folder: where they go.
      keep: how many are kept; 0 or None for all.
    """

    def __init__(self, folder: str, keep: int | None):
        self.folder, self.keep = folder, keep
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future | None = None
        filesystem.makedirs(folder)
        self._clean()
        self._tidied = tidied(self._pool.shutdown)  # which waits for a save that has begun
        self._tidied.__enter__()

    def save(self, step: int, variables: dict[str, tf.Variable]) -> None:
        """Takes the values of now and writes them in the background; waits for the save before."""
        self.wait()
        with tf.device("CPU:0"):
            tensors = {name: tf.identity(variable.read_value()) for name, variable in variables.items()}
        self._pending = self._pool.submit(self._write, step, tensors)

    def wait(self) -> None:
        """Waits until what was saved is on disk.

        Raises:
          UserError: it could not be written; the last good checkpoint is named.
        """
        pending, self._pending = self._pending, None
        if pending is None:
            return
        try:
            pending.result()
        except (tf.errors.OpError, OSError) as error:
            last = checkpoints.find(self.folder)
            raise UserError(
                f"cannot write a checkpoint in {self.folder}: {str(error).splitlines()[0]}; the last good one "
                f"is {last or 'none'}. Free some space or check the folder's rights, then run the same "
                "command to go on from there"
            ) from error

    def close(self) -> None:
        """Waits for the last save and ends the background thread."""
        try:
            self.wait()
        finally:
            self._pool.shutdown()
            self._tidied.__exit__(None, None, None)

    def _write(self, step: int, tensors: dict[str, tf.Tensor]) -> None:
        checkpoints.write(os.path.join(self.folder, f"{checkpoints.PREFIX}-{step}"), tensors)
        steps = checkpoints.whole_checkpoints(self.folder)
        kept = [s for s in steps if s <= step]
        kept = kept[-self.keep :] if self.keep else kept
        checkpoints.write_state(self.folder, kept)
        for old in {s for s in steps if s < step} - set(kept):
            self._remove(old)

    def _remove(self, step: int) -> None:
        for suffix in (".index", ".data-00000-of-00001", ".meta"):
            path = os.path.join(self.folder, f"{checkpoints.PREFIX}-{step}{suffix}")
            if filesystem.exists(path):
                filesystem.remove(path)

    def _clean(self) -> None:
        """Removes what a kill in the middle of a save left: the saving folder, data files without an index."""
        filesystem.rmtree(os.path.join(self.folder, checkpoints.SAVING), ignore_errors=True)
        for name in filesystem.listdir(self.folder):
            data = name.removesuffix(".data-00000-of-00001")
            orphan = (
                data != name
                and data.startswith(checkpoints.PREFIX)
                and not filesystem.exists(os.path.join(self.folder, data + ".index"))
            )
            if orphan or ".tmp-" in name:
                filesystem.remove(os.path.join(self.folder, name))
