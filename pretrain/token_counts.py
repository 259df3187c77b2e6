"""How often each token stands in the shards: counted once, then kept in the manifest, or else beside them.

Needs no TensorFlow.
"""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from configure_pretraining import PretrainingConfig
from pretrain.manifest import COUNTS_NAME, read_manifest, write_manifest
from pretrain.shards import ShardList, Window, find_shards
from util import filesystem
from util.files import read_json, write_json
from util.log import say
from util.progress import Progress
from util.tf_example import read_example

KEY, BATCH = "token_counts", 1024


def count_tokens(
    patterns: str, config: PretrainingConfig, left_out: Sequence[int], cache: bool = True
) -> np.ndarray:
    """[V] int64: how often each token stands in the shards.

    Args:
      patterns: globs of the shards, as pretrain_tfrecords.
      config: vocab_size and skip_corrupt_records are used.
      left_out: ids that count as 0: [CLS], [SEP] and [MASK].
      cache: keep what was counted.
    """
    shards, total = find_shards(patterns, config.skip_corrupt_records), np.zeros([config.vocab_size], np.int64)
    for folder in sorted({os.path.dirname(path) for path in shards.paths}):
        here = [i for i, path in enumerate(shards.paths) if os.path.dirname(path) == folder]
        part = ShardList([shards.paths[i] for i in here], [shards.counts[i] for i in here], {}, shards.skip_corrupt)
        counts = _kept(folder, part)
        if counts is None:
            counts = _count(part, config)
            if cache:
                _keep(folder, part, counts)
        total[: len(counts)] += counts
    total[list(left_out)] = 0
    return total


def _count(shards: ShardList, config: PretrainingConfig) -> np.ndarray:
    """[largest id + 1] counts of all real tokens."""
    counts, window = np.zeros([config.vocab_size], np.int64), Window(shards, list(range(len(shards.paths))), None)
    progress = Progress("counting tokens", len(window), "examples")
    for begin in range(0, len(window), BATCH):
        end = min(begin + BATCH, len(window))
        parsed = [read_example(window.read(i)) for i in range(begin, end)]
        ids, real = (np.array([example[name] for example in parsed]) for name in ("input_ids", "input_mask"))
        counts += np.bincount(ids[real > 0], minlength=config.vocab_size)
        progress.update(end)
    progress.close()
    return counts


def _kept(folder: str, shards: ShardList) -> np.ndarray | None:
    """The counts that an earlier run kept, if they are of these very shards."""
    manifest, path = read_manifest(folder), os.path.join(folder, COUNTS_NAME)
    if manifest is not None:
        kept = manifest.get(KEY)
    else:
        kept = read_json(path, "token counts") if filesystem.exists(path) else None
    if not isinstance(kept, dict) or kept.get("shards_sha256") != shards.fingerprint():
        return None
    return np.array([int(count) for count in kept["counts"].split()], np.int64)


def _keep(folder: str, shards: ShardList, counts: np.ndarray) -> None:
    """Keeps counts as one line of text, which a manifest remains readable with."""
    manifest = read_manifest(folder)
    kept: dict[str, Any] = {"shards_sha256": shards.fingerprint(), "counts": " ".join(map(str, counts.tolist()))}
    try:
        if manifest is not None:
            write_manifest(folder, {**manifest, KEY: kept})
        else:
            write_json(os.path.join(folder, COUNTS_NAME), kept)
    except OSError as error:
        say(f"note: the token counts cannot be kept in {folder} ({error.strerror}); the next run counts again")
