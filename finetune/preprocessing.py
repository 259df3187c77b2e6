"""Features of a task's examples: made once, kept in a TFRecord file, read by number.

The file is named after everything that shaped it, so that a change of any of that is another file. Beside it lies a
JSON with its checksum, the examples' lengths and what the log says of them. Both are written beside and renamed, the
JSON last: a build that is killed leaves nothing that counts.
"""

import contextlib
import hashlib
import json
import os
import re
import socket
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from configure_finetuning import FinetuningConfig
from finetune.feature_spec import Features
from finetune.tables import notes_on
from finetune.task import Task
from model.tokenization import CLS, MAX_WORD_LENGTH, PAD, SEP, UNK
from util import filesystem
from util.errors import UserError
from util.files import read_object, sha256_of, write_text, writing
from util.log import say
from util.progress import Progress
from util.tf_example import example_bytes, read_example
from util.tfrecords import Shard, record_bytes
from util.workers import run_workers

VERSION = 4  # of the features and of the JSON beside them; another one when the same example gives other ones
LEAST_PER_PROCESS = 50_000  # examples; fewer are made before another process has started
LEAST_WITH_PROGRESS = 5000
SHOWN = 3  # examples in the log
MOST_SHOWN = 1000  # characters of an example in the log
REPORT_EVERY = 500  # examples between two reports of progress


class FeatureSet:
    """The features of a split: `features[i]` is those of example (for QA: window) i, unpadded.

    Attributes:
      task: of which they are.
      path: the file.
      key: of everything that shaped them.
      lengths: of each one, in tokens (int32).
      described: what the log says of them.
    """

    def __init__(self, task: Task, path: str, description: dict[str, Any]):
        self.task, self.path, self.key, self.described = task, path, description["key"], description
        self.lengths = np.asarray(description["lengths"], np.int32)
        self._shard = Shard(path)
        self._scalars = {spec.name for spec in task.feature_specs if spec.shape == ()}

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> Features:
        features = read_example(self._shard[index])
        return {name: value[0] if name in self._scalars else value for name, value in features.items()}


def feature_set(
    task: Task, split: str, is_training: bool, config: FinetuningConfig, progress: bool = True
) -> FeatureSet:
    """The features of a split, from the cache where it holds them, else made now.

    Raises:
      UserError: the split's files are missing or hold nothing that can be used, or the disk is full.
    """
    key = cache_key(task, split, is_training, config)
    name = f"{task.name}_{split}{'_training' if is_training else ''}-{key[:16]}"
    path = os.path.join(config.preprocessed_data_dir, name + ".tfrecord")
    description = _cached(path, key, config.log_examples) if config.use_tfrecords_if_existing else None
    if description is None:
        description = {"key": key, **_build(task, split, is_training, config, path, progress)}
        description["checksum"] = _checksum(description)
        with writing(f"the features {path}"):
            write_text(_json_path(path), json.dumps(description, ensure_ascii=False) + "\n")
    _say_what(task.name, split, description, config.log_examples)
    return FeatureSet(task, path, description)


def cache_key(task: Task, split: str, is_training: bool, config: FinetuningConfig) -> str:
    """A hash of everything that shapes the features."""
    tokenizer = task.tokenizer
    shaped_by = {
        "version": VERSION,
        "task": [task.name, task.kind, type(task).__name__],
        "split": split,
        "is_training": is_training,
        "debug": config.debug,
        "max_seq_length": config.max_seq_length,
        "files": [sha256_of(path) for path in task.files(split)],
        "vocabulary": tokenizer.vocabulary.sha256,
        "do_lower_case": tokenizer.do_lower_case,
        "strip_accents": tokenizer.strip_accents,
        "task_settings": task.shaped_by(),
    }
    return hashlib.sha256(json.dumps(shaped_by, sort_keys=True).encode()).hexdigest()


def _json_path(path: str) -> str:
    return path.removesuffix(".tfrecord") + ".json"


def _cached(path: str, key: str, log_examples: bool) -> dict[str, Any] | None:
    """What is known of the features that an earlier run left; None where there are none or they are damaged."""
    if not (filesystem.exists(path) and filesystem.exists(_json_path(path))):
        return None
    try:
        description = read_object(_json_path(path), "key", "sha256", "checksum")
        found = [description[name] for name in ("key", "checksum", "sha256")]
        if found == [key, _checksum(description), sha256_of(path)]:
            complete = len(description["shown"]) == description["examples"]
            return description if complete or not log_examples else None
    except UserError:
        pass  # said below
    say(f"the cached features {path} are damaged: they are made anew")
    return None


def _checksum(description: dict[str, Any]) -> str:
    """Of what is known of features, without the checksum itself."""
    rest = {name: value for name, value in description.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


# ---------------------------------------------------------------------------------------------------------------------
# Building


def _build(
    task: Task, split: str, is_training: bool, config: FinetuningConfig, path: str, progress: bool
) -> dict[str, Any]:
    """Makes the features of a split and gives their description."""
    examples = task.examples(split)
    if not examples:
        raise UserError(f"{task.name}: the split {split} holds no examples: {', '.join(task.files(split))}")
    processes = max(1, min(config.num_processes, len(examples) // LEAST_PER_PROCESS))
    bounds = [len(examples) * i // processes for i in range(processes + 1)]
    with writing(f"the features {path}"):
        filesystem.makedirs(os.path.dirname(path))
        _remove_leftovers(os.path.dirname(path))
        parts = [f"{path}.tmp-{socket.gethostname()}-{os.getpid()}-{i}" for i in range(processes)]
        work = [(task, is_training, examples[start:end], part) for part, start, end in zip(parts, bounds, bounds[1:])]
        try:
            found = _run(work, f"features of {task.name} {split}", len(examples), progress)
            description = _together(found, config.log_examples)
            if not description["lengths"]:
                raise UserError(f"{task.name}: none of the {len(examples)} examples of {split} can be used")
            description["sha256"] = _join(parts, path)
        finally:
            for part in parts:
                if filesystem.exists(part):
                    filesystem.remove(part)
    description["label_counts"] = task.label_counts(examples)
    description["files"] = task.files(split)
    description["notes"] = [note for file in description["files"] for note in notes_on(file)]
    return description


def _remove_leftovers(folder: str) -> None:
    """Removes the parts of builds that were killed: of any features, but of dead processes on this host alone."""
    pattern = re.compile(rf".*\.tfrecord\.tmp-{re.escape(socket.gethostname())}-(\d+)-\d+")
    for name in filesystem.listdir(folder):
        if (match := pattern.fullmatch(name)) and not _is_alive(int(match[1])):
            with contextlib.suppress(FileNotFoundError):  # another build was quicker
                filesystem.remove(os.path.join(folder, name))


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is another user's
        pass
    return True


def _run(work: list[tuple], label: str, total: int, progress: bool) -> list[dict[str, Any]]:
    done = [0] * len(work)
    line = Progress(label, total, "examples")

    def on_report(i: int, number: int) -> None:
        done[i] = number
        if progress:
            line.update(sum(done))

    found = run_workers(_write_part, work, on_report)
    line.update(total)
    if progress and total >= LEAST_WITH_PROGRESS:
        line.close()
    return found


def _write_part(
    task: Task, is_training: bool, examples: list[Any], path: str, report: Callable[[int], None]
) -> dict[str, Any]:
    """Writes the features of some examples as records; gives their lengths and what the log says of them."""
    unknown, special = task.tokenizer.vocab[UNK], {task.tokenizer.vocab[token] for token in (PAD, CLS, SEP)}
    floats = {spec.name for spec in task.feature_specs if not spec.is_int}
    found: dict[str, Any] = {"lengths": [], "shown": [], "examples": len(examples)}
    counts: Counter[str] = Counter()
    shown = len(examples) if task.config.log_examples else SHOWN
    with filesystem.open(path, "wb") as file:
        for number, example in enumerate(examples):
            long_words = task.tokenizer.long_words
            windows = task.featurize(example, is_training)
            counts["long_words"] += task.tokenizer.long_words - long_words
            counts["unused"] += not windows
            counts["cut"] += bool(windows) and task.is_cut(example, windows)
            for features in windows:
                ids = features["input_ids"]
                found["lengths"].append(len(ids))
                counts["unknown"] += ids.count(unknown)
                counts["pieces"] += len(ids) - sum(map(ids.count, special))
                file.write(record_bytes(serialized(features, floats)))
            if number < shown:
                found["shown"].append(_shown(task, example, windows))
            if number % REPORT_EVERY == 0:
                report(number)
        filesystem.settle(file)
    return found | counts


def serialized(features: Features, floats: set[str]) -> bytes:
    """Features as a serialized tf.train.Example; `floats` names those that are no integers."""
    listed = {name: value if isinstance(value, list) else [value] for name, value in features.items()}
    return example_bytes(
        {name: value for name, value in listed.items() if name not in floats},
        {name: value for name, value in listed.items() if name in floats},
    )


def _shown(task: Task, example: Any, windows: list[Features]) -> list[str]:
    text, label = task.shown(example)
    pieces = " ".join(task.tokenizer.convert_ids_to_tokens(windows[0]["input_ids"])) if windows else "(not used)"
    return [_short(text), _short(pieces), _short(label)]


def _short(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}... ({len(text)} characters)"


def _together(found: list[dict[str, Any]], all_shown: bool) -> dict[str, Any]:
    """What is known of all parts."""
    names = ("examples", "unused", "cut", "unknown", "pieces", "long_words")
    return {
        "lengths": [length for part in found for length in part["lengths"]],
        "shown": [shown for part in found for shown in part["shown"]][: None if all_shown else SHOWN],
        **{name: sum(part[name] for part in found) for name in names},
    }


def _join(parts: list[str], path: str) -> str:
    """Puts the parts one after the other under the file's name at once; gives the SHA-256 of it all."""
    digest = hashlib.sha256()
    with filesystem.open(parts[0], "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    with filesystem.open(parts[0], "ab") as whole:
        for part in parts[1:]:
            with filesystem.open(part, "rb") as file:
                while block := file.read(1 << 20):
                    whole.write(block)
                    digest.update(block)
        filesystem.settle(whole)
    filesystem.rename(parts[0], path)
    return digest.hexdigest()


# ---------------------------------------------------------------------------------------------------------------------
# What the log says


def _say_what(task: str, split: str, description: dict[str, Any], all_examples: bool) -> None:
    """What reading the files told, shares of [UNK] and of cut examples, label counts, examples with their pieces."""
    for note in description["notes"]:
        say(note)
    number, features = description["examples"], len(description["lengths"])
    parts = [f"{task} {split}: {number} examples"]
    if features != number:
        parts.append(f"{features} features")
    if unused := description["unused"]:
        parts.append(f"{unused} examples cannot be used")
    parts.append(f"longest {max(description['lengths'])} tokens")
    parts.append(f"[UNK] {description['unknown'] / max(1, description['pieces']):.2%} of the pieces")
    if long_words := description["long_words"]:
        parts.append(f"{long_words} words of over {MAX_WORD_LENGTH} characters are [UNK]")
    parts.append(f"{description['cut']} examples cut to fit = {description['cut'] / number:.2%}")
    say(", ".join(parts))
    if counts := description["label_counts"]:
        say("  labels: " + ", ".join(f"{label} {count}" for label, count in counts.items()))
    for text, pieces, label in description["shown"][: None if all_examples else SHOWN]:
        say(f"  text:   {text}\n  pieces: {pieces}\n  label:  {label}")
