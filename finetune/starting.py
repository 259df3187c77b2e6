"""Before a run starts TensorFlow: sizes and tokenizer of the pre-trained model, its checkpoint, and all features."""

import dataclasses
import itertools
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

from configure_finetuning import FinetuningConfig
from finetune.task import Task
from finetune.trials import BEST, TOKENIZER, Trial, report
from model.checkpoint_files import find
from model.config import TransformerConfig
from model.description import NETWORKS, check_heads, fields_of_folder, tasks_of_folder
from model.tokenization import Vocabulary
from util import filesystem
from util.agreement import check_shared, checkpoint_fact
from util.cluster import Cluster
from util.errors import UserError, nearest_hint
from util.files import check_writable, read_object
from util.folder_lock import FolderLock
from util.log import say

SIZE_HPARAMS = {  # fields of a network, and the hparams that set them
    "hidden_size": "model_size, or hidden_size in model_hparam_overrides",
    "intermediate_size": "model_size, or intermediate_size in model_hparam_overrides",
    "type_vocab_size": "type_vocab_size in model_hparam_overrides",
    "vocab_size": "vocab_size",
}
SIZES = ("model_size", "model_hparam_overrides", "embedding_size", "vocab_size")


def adopted(config: FinetuningConfig, passed: dict[str, Any]) -> dict[str, Any]:
    """What the files beside the checkpoint say of the model's sizes and tokenizer, where it is not passed.

    With random weights (init_checkpoint null) the pre-trained model's folder tells, where there is one.
    """
    folder, values = notes_folder(config), {}
    if folder is None or config.debug:
        return values
    fields = fields_of_folder(folder, "discriminator")
    if fields and not any(name in passed for name in SIZES):
        values["vocab_size"] = fields.pop("vocab_size", config.vocab_size)
        values["model_hparam_overrides"] = fields
        if filesystem.exists(path := os.path.join(folder, NETWORKS)):
            values["embedding_size"] = read_object(path, "embedding_size")["embedding_size"]
        elif filesystem.exists(path := os.path.join(folder, "config.json")):
            values["embedding_size"] = read_object(path).get("embedding_size", fields.get("hidden_size"))
        if not isinstance(size := values.get("embedding_size"), (int, type(None))):
            raise UserError(f'{path}: "embedding_size" must be a whole number, got {size!r}; mend it')
        say(f"note: the model's sizes are those of {folder}")
    if "do_lower_case" not in passed and (lower := tokenizer_of(folder).get("do_lower_case")) is not None:
        values["do_lower_case"] = lower
    if "vocab_file" not in passed and filesystem.exists(path := os.path.join(folder, "vocab.txt")):
        values["vocab_file"] = path
    return values


def folder_of(checkpoint: str | None) -> str | None:
    """The folder that a checkpoint lies in."""
    if not checkpoint:
        return None
    return checkpoint if filesystem.isdir(checkpoint) else os.path.dirname(checkpoint) or "."


def notes_folder(config: FinetuningConfig) -> str | None:
    """The folder whose notes say what the model is; without training, that of the first trial where there is one."""
    if not config.do_train and config.init_checkpoint in (None, config.pretrained_dir):
        if filesystem.exists(os.path.join(config.trial_dir(1), NETWORKS)):
            return config.trial_dir(1)
    if config.init_checkpoint:
        return folder_of(config.init_checkpoint)
    return config.pretrained_dir if filesystem.isdir(config.pretrained_dir) else None


def tokenizer_of(folder: str | None) -> dict[str, Any]:
    """The tokenizer settings that a model folder notes."""
    path = os.path.join(folder or "", TOKENIZER)
    found = read_object(path) if folder and filesystem.exists(path) else {}
    for name in ("do_lower_case", "strip_accents"):
        if not isinstance(found.get(name), (bool, type(None))):
            raise UserError(f'{path}: "{name}" must be true, false or null, got {found[name]!r}; mend it')
    return found


def strips_accents(config: FinetuningConfig) -> bool:
    """Whether accents are dropped: as the hparam says, else as in pre-training, else whenever lower-casing."""
    if config.strip_accents is not None:
        return config.strip_accents
    noted = tokenizer_of(notes_folder(config)).get("strip_accents")
    return config.do_lower_case if noted is None else bool(noted)


def check_vocab(config: FinetuningConfig, vocab: Vocabulary) -> None:
    """Raises a `UserError` for a vocabulary that is larger than the token table; a smaller one is said."""
    if len(vocab) > config.vocab_size:
        raise UserError(
            f"the vocabulary {config.vocab_file} has {len(vocab)} pieces, more than vocab_size {config.vocab_size}; "
            f"set vocab_size to {len(vocab)} (or a little more)"
        )
    if len(vocab) < config.vocab_size:
        say(f"note: the vocabulary {config.vocab_file} has {len(vocab)} pieces, vocab_size is {config.vocab_size}")


def check_keep_best(config: FinetuningConfig, tasks: Sequence[Task]) -> None:
    """Raises a `UserError` where keep_best names no metric: "NAME" of every task, or "TASK/NAME" of one."""
    if config.keep_best is None:
        return
    of, _, name = config.keep_best.rpartition("/")
    chosen = [task for task in tasks if of in ("", task.name)]
    for task in chosen:
        names = [*task.metric_names, "loss"]
        if name not in names:
            hint = nearest_hint(name, names) or "."
            has = ", ".join(names)
            raise UserError(f'keep_best "{config.keep_best}" is no metric of {task.name}{hint} It has: {has}')
    if not chosen:
        raise UserError(f'keep_best "{config.keep_best}": {of} is none of the tasks: {", ".join(config.task_names)}')


def check_checkpoint(config: FinetuningConfig) -> str:
    """The checkpoint that training starts from.

    Raises:
      UserError: there is none, or the files beside it tell of a network of another size.
    """
    path = config.init_checkpoint
    if path == config.pretrained_dir and not filesystem.isdir(path):
        models = os.path.join(config.data_dir, "models")
        there = sorted(filesystem.listdir(models)) if filesystem.isdir(models) else []
        raise UserError(
            f"there is no pre-trained model {path}; below {models}: {', '.join(there) or 'none'}. Pass another "
            "--model-name, or init_checkpoint: a checkpoint elsewhere, or null for random weights"
        )
    prefix = find(path)
    if prefix is None:
        raise UserError(
            f"the folder {path} holds no checkpoint; pass init_checkpoint: a checkpoint elsewhere, or null for random "
            "weights"
        )
    _check_sizes(prefix, config.network())
    check_heads(prefix, config.network())
    return prefix


def _check_sizes(prefix: str, network: TransformerConfig) -> None:
    theirs = fields_of_folder(os.path.dirname(prefix), "discriminator")
    wrong = [
        f"\n  {name}: {theirs[name]} there, {getattr(network, name)} here: change {hparam}"
        for name, hparam in SIZE_HPARAMS.items()
        if theirs.get(name, getattr(network, name)) != getattr(network, name)
    ]
    if wrong:
        raise UserError(
            f"the checkpoint {prefix} is of a model of another size:{''.join(wrong)}\n"
            f"or pass none of {', '.join(SIZES)}: the sizes are then those of the checkpoint"
        )


def trained_models(config: FinetuningConfig, tasks: Sequence[Task]) -> list[tuple[int, str]]:
    """The fine-tuned checkpoints that are evaluated without training: trial (1 where it is another) and prefix.

    init_checkpoint (its best weights where they were kept) where it is another than the pre-trained model's folder,
    else the trials' folders.

    Raises:
      UserError: there is none, or its tasks or labels are others.
    """
    if config.init_checkpoint and config.init_checkpoint != config.pretrained_dir:
        best = os.path.join(config.init_checkpoint, BEST)
        path = best if filesystem.isdir(best) else config.init_checkpoint
        found = [(1, check_checkpoint(dataclasses.replace(config, init_checkpoint=path)))]
    else:
        found = [(t.number, t.weights) for t in _trained_trials(config, tasks)]
    if not found:
        raise UserError(
            f"do_train is false and there is no fine-tuned model: neither {config.trial_dir(1)} nor init_checkpoint; "
            "train first, or set init_checkpoint to a fine-tuned model's folder"
        )
    for _, prefix in found:
        _check_tasks(os.path.dirname(prefix), tasks)
    return found


def _trained_trials(config: FinetuningConfig, tasks: Sequence[Task]) -> list[Trial]:
    trials = [Trial(config, i, tasks, {}) for i in range(1, config.num_trials + 1)]
    trials = [trial for trial in trials if filesystem.isdir(trial.folder) and trial.weights]
    for trial in trials:
        if not trial.record:
            with FolderLock(trial.folder):  # whose training would replace the weights meanwhile
                say(f"note: trial {trial.number} is not finished: these are the weights of {trial.weights}")
    return trials


def _check_tasks(folder: str, tasks: Sequence[Task]) -> None:
    """Labels are numbers to the head, so other ones would go unnoticed."""
    noted = tasks_of_folder(folder)
    for task in tasks if noted else ():
        if task.head_name not in noted:
            raise UserError(
                f"the model in {folder} lacks the head of {task.head_name}: it was fine-tuned on {', '.join(noted)}, "
                "so there is nothing to evaluate; set do_train true, or init_checkpoint to another model"
            )
        there = noted[task.head_name]
        if task.name == task.head_name and there != task.described():
            raise UserError(
                f"the model in {folder} was fine-tuned on another {task.name}: {there} there, {task.described()} here"
            )


class Examples(NamedTuple):
    """The features that a run needs, by the task's number."""

    training: dict[int, Any]
    evaluation: dict[int, dict[str, Any]]  # by split
    prediction: dict[int, dict[str, Any]]  # by split: test outputs and do_predict


def collect(config: FinetuningConfig, tasks: Sequence[Task], feature_set: Callable[..., Any]) -> Examples:
    """The features of all splits that the run needs: for training, for evaluation, for predictions."""
    training, evaluation, prediction = {}, {}, {}
    for task in tasks if config.do_predict else ():
        task.files(config.predict_split)  # whether they are there, before others are read
    for number, task in enumerate(tasks):
        if config.do_train:
            training[number] = feature_set(task, "train", True, config)
        if config.evaluates:
            splits = [s for i, s in enumerate(task.evaluation_splits) if i == 0 or has_files(task, s)]
            evaluation[number] = {split: feature_set(task, split, False, config) for split in splits}
            if not splits:
                say(f"note: {task.name} has no labelled split, so it is not evaluated")
        wanted = [config.predict_split] if config.do_predict else []
        if config.write_test_outputs:
            there = [split for split in task.test_splits if has_files(task, split)]
            if not there:
                say(f"note: {task.name} has no file for {', '.join(task.test_splits)}, so there are no test outputs")
            wanted += [split for split in there if split not in wanted]
        prediction[number] = {split: feature_set(task, split, False, config) for split in wanted}
    return Examples(training, evaluation, prediction)


def facts(
    config: FinetuningConfig, vocab: Vocabulary, tasks: Sequence[Task], examples: Examples, trials: Sequence[Trial]
) -> dict[str, Any]:
    """What all workers must have alike beside the hparams: data, and where each trial starts or that it is over."""
    found = {"vocabulary (SHA-256)": vocab.sha256}
    for number, rows in examples.training.items():
        found[f"training examples of {tasks[number].name}"] = f"{len(rows)} ({rows.key[:12]})"
    for kind, sets in (("evaluation", examples.evaluation), ("prediction", examples.prediction)):
        for number, splits in sets.items():
            for split, rows in splits.items():
                found[f"{kind} examples of {tasks[number].name} {split}"] = f"{len(rows)} ({rows.key[:12]})"
    for trial in trials:
        found[f"trial {trial.number}"] = "finished" if trial.record else checkpoint_fact(trial.checkpoint)
    start = find(config.init_checkpoint) if config.init_checkpoint else None
    return {**found, "init_checkpoint": checkpoint_fact(start)}


def has_files(task: Task, split: str) -> bool:
    """Whether all files of a split are there."""
    try:
        return all(filesystem.exists(path) for path in task.files(split))
    except UserError:
        return False


def open_trials(config: FinetuningConfig, tasks: Sequence[Task], examples: Examples) -> list[Trial]:
    """The trials of the command, compared with what lies in their folders (without end: the first of them)."""
    data = {tasks[number].name: rows.key for number, rows in examples.training.items()}
    trials = [Trial(config, i, tasks, data) for i in range(1, max(1, config.num_trials) + 1)]
    for trial in trials:
        trial.check()
    return trials


def further_records(config: FinetuningConfig, trial: Trial) -> list[dict[str, Any]]:
    """The records of finished trials beyond num_trials with the same hparams, so that no results are lost."""
    records = []
    for number in itertools.count(trial.number + 1):
        other = trial.another(number)
        if config.num_trials < 0 or other.record is None or not other.is_alike:
            return records
        records.append(other.record)


def check_folders(config: FinetuningConfig, trials: Sequence[Trial], cluster: Cluster) -> None:
    """Raises a `UserError` where a folder cannot be written in, or the first is held by another run or not shared."""
    outputs = [config.results_txt]
    if config.do_predict or config.write_test_outputs:
        outputs.append(config.test_predictions)
    for path in outputs:
        check_writable(os.path.dirname(path))
    if filesystem.isdir(config.results_txt):
        raise UserError(f'hparam "results_txt" must be a file, and {config.results_txt} is a folder')
    unfinished = [trial for trial in trials if not trial.record]
    if unfinished:
        with FolderLock(unfinished[0].folder) if cluster.is_chief else nullcontext():  # as while it is trained
            check_shared(cluster, unfinished[0].folder)


def all_finished(config: FinetuningConfig, trials: Sequence[Trial]) -> bool:
    """Whether nothing is left to train or to predict; says so and prints the results."""
    records = [trial.record for trial in trials]
    if all(records):
        records += further_records(config, trials[-1])
    if config.num_trials < 0 or not all(records) or config.do_predict or config.write_test_outputs:
        return False
    say(
        f"nothing to do: all {len(trials)} trials are finished ({trials[-1].folder} is the last). Set num_trials "
        "higher for more of them, or overwrite true to train anew"
    )
    report(config, records)
    return True
