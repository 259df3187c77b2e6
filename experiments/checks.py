"""What an experiment reads must be there before anything runs: shards, vocabulary, tasks. Needs no TensorFlow."""

import os

import numpy as np

from experiments.configuration import Experiment
from experiments.runs import Judged, TaskRun
from finetune import starting
from finetune.task_builder import make_tasks
from model.tokenization import FullTokenizer, load_vocab
from pretrain.shards import check_examples, check_manifests, find_shards
from pretrain.token_counts import count_tokens
from util import filesystem
from util.errors import UserError
from util.files import read_object, write_json
from util.log import say

KEPT = "experiment.json"  # in the experiment's folder: what its results were made with


def check_data(experiment: Experiment) -> None:
    """Looks at the shards of every run and at the files of every task.

    Raises:
      UserError: something is missing or does not fit.
    """
    seen = set()
    for run in experiment.runs:
        config = run.config
        vocab = load_vocab(config.vocab_file)
        for patterns in (config.pretrain_tfrecords, config.eval_tfrecords):
            key = (patterns, config.vocab_file, config.max_seq_length, config.vocab_size, config.do_lower_case)
            if key in seen:
                continue
            starting.check_vocab(run.tasks[0].config, vocab)
            seen.add(key)
            shards = find_shards(patterns, config.skip_corrupt_records)
            check_manifests(shards, config.max_seq_length, vocab, config.do_lower_case)
            check_examples(shards, config.max_seq_length, config.vocab_size, vocab.ids["[CLS]"])
    for task in experiment.runs[0].tasks:
        judged_by(task)


def judged_by(run: TaskRun) -> Judged:
    """The split and the metric that a task is judged by, after a look at its files."""
    config = run.config
    tokenizer = FullTokenizer(load_vocab(config.vocab_file), config.do_lower_case, starting.strips_accents(config))
    try:
        [task] = make_tasks(config, tokenizer)
        split = task.evaluation_splits[0]
        paths = [path for part in ("train", split) for path in task.files(part)]
    except UserError as error:
        raise UserError(f'task "{run.name}": {error}') from error
    if missing := [path for path in paths if not filesystem.exists(path)]:
        raise UserError(f'task "{run.name}": there is no file {missing[0]}; put it there, or leave the task out')
    return Judged(split, task.metric.name)


def check_kept(experiment: Experiment) -> None:
    """Compares the configuration with the one that the folder's results were made with, then keeps it.

    Objectives, budgets, tasks and seeds may be added or left out; what was shared by finished runs may not change.

    Raises:
      UserError: results of other hparams would stand in one table.
    """
    path, now = os.path.join(experiment.folder, KEPT), {**experiment.values, "data": _fingerprints(experiment)}
    if filesystem.exists(path):
        before = read_object(path, "pretraining", "eval_tfrecords", "data", "objectives", "tasks", what="note")
        changed = [name for name in ("pretraining", "eval_tfrecords", "data") if before[name] != now[name]]
        for section in ("objectives", "tasks"):
            then, wanted = before[section], now[section]
            changed += [f'"{name}" in {section}' for name in wanted if then.get(name, wanted[name]) != wanted[name]]
            now[section] = {**then, **wanted}
        if changed:
            raise UserError(
                f"{experiment.folder} holds results of another configuration, changed since: {', '.join(changed)}. "
                "Copy the configuration to a file of another name: models and results are named after it"
            )
    write_json(path, now)


def _fingerprints(experiment: Experiment) -> dict[str, str]:
    """What tells the vocabulary and shards from others."""
    config = experiment.runs[0].config
    return {
        "vocabulary": load_vocab(config.vocab_file).sha256,
        "shards": find_shards(config.pretrain_tfrecords, config.skip_corrupt_records).fingerprint(),
        "held out": find_shards(config.eval_tfrecords, config.skip_corrupt_records).fingerprint(),
    }


def unigram_entropy(experiment: Experiment) -> float:
    """Nats a token: the loss of a model that knows how often the shards have each token, and nothing else."""
    config = experiment.runs[0].config
    ids = load_vocab(config.vocab_file).ids
    counts = count_tokens(config.pretrain_tfrecords, config, [ids[name] for name in ("[CLS]", "[SEP]", "[MASK]")])
    shares = counts[counts > 0] / counts.sum()
    entropy = float(-(shares * np.log(shares)).sum())
    say(f"unigram entropy of the training shards: {entropy:.3f} nats")
    return entropy
