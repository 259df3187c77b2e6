#!/usr/bin/env python3
"""Pre-trains or evaluates an ELECTRA model: shards of examples to checkpoints, curves and metrics.

With --plan it says what a training will take, and does nothing.
"""

import argparse
import dataclasses
import os
import sys
from contextlib import nullcontext
from typing import Any

from configure_pretraining import IGNORED, PretrainingConfig, make_config, validate
from model.tokenization import Vocabulary, load_vocab
from pretrain import model_folder
from pretrain.plan import say_plan
from pretrain.shards import ShardList, check_examples, check_manifests, find_shards
from util.agreement import check_shared, checkpoint_fact, common_facts
from util.cluster import Cluster
from util.distribution import choose, read_cluster
from util.errors import UserError, run_main
from util.folder_lock import FolderLock
from util.hparams import parse_hparams
from util.log import heading, say


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="hparams and their defaults:\n"
        + "\n".join(
            f"  {field.name} = {'{}' if field.default is dataclasses.MISSING else field.default}"
            for field in dataclasses.fields(PretrainingConfig)[2:]
        )
        + "\nconfigure_pretraining.py says what each of them means.",
    )
    parser.add_argument("--data-dir", help="holds vocab.txt, pretrain_tfrecords/ and models/")
    parser.add_argument("--model-name", help="names the folder models/<model-name> below it")
    parser.add_argument(
        "--hparams",
        action="append",
        default=[],
        metavar="JSON|FILE|NAME=VALUE",
        help="settings; may be given several times, later ones win",
    )
    parser.add_argument(
        "--plan",
        nargs="*",
        metavar="DEVICES",
        help="say parameters, FLOPs, memory, hours and cost on these devices (e.g. 8xA100-40G; none: all that are "
        "known) without any work on a device; --data-dir and --model-name may be left out",
    )
    parser.add_argument("--price-per-hour", type=float, metavar="PRICE", help="of one device, for --plan")
    arguments = parser.parse_args()
    if arguments.plan is None and not (arguments.data_dir and arguments.model_name):
        parser.error("--data-dir and --model-name are required, unless there is --plan")
    if arguments.plan is None and arguments.price_per_hour is not None:
        parser.error("--price-per-hour needs --plan")
    return arguments


def main() -> int:
    # ---- what is asked for, checked before TensorFlow starts ----
    arguments = parse_arguments()
    passed = parse_hparams(arguments.hparams)
    for name in sorted(passed.keys() & set(IGNORED)):
        say(f"note: hparam {name} is not used: results are written as text and JSON, nothing is pickled")
    config = make_config(arguments.model_name or "MODEL", arguments.data_dir or "DATA", passed)
    if config.do_eval and not config.do_train:
        saved = model_folder.saved_shape(config.model_dir)
        config = make_config(config.model_name, config.data_dir, {**saved, **passed})
    validate(config)
    if arguments.plan is not None:
        say_plan(config, arguments.plan, arguments.price_per_hour)
        return 0
    workers = read_cluster() if choose(config) == "multi_worker" else None
    with Cluster.of(workers, lambda: model_folder.how_to_go_on(config)) as cluster:
        return _run(config, cluster)


def _run(config: PretrainingConfig, cluster: Cluster) -> int:
    vocab = _load_vocab(config)
    held_out = config.eval_tfrecords and find_shards(config.eval_tfrecords, config.skip_corrupt_records)
    shards = (
        held_out if config.do_eval and held_out else find_shards(config.pretrain_tfrecords, config.skip_corrupt_records)
    )
    if config.eval_every_steps and not held_out:
        raise UserError("eval_every_steps needs eval_tfrecords, the shards to evaluate on")
    for data in filter(None, {id(shards): shards, id(held_out): held_out}.values()):
        check_manifests(data, config.max_seq_length, vocab, config.do_lower_case)
        check_examples(data, config.max_seq_length, config.vocab_size, vocab.ids["[CLS]"])

    # ---- the run ----
    with FolderLock(config.model_dir) if config.do_train and cluster.is_chief else nullcontext():
        if config.do_train:
            model_folder.check(config, vocab, shards)
        start = model_folder.find_start(config)
        cluster.agree(_facts(config, vocab, shards, held_out, start))
        if config.do_train:
            check_shared(cluster, config.model_dir)
        if config.do_train and model_folder.finished(config):
            return 0
        if config.do_eval and not held_out:
            say("note: eval_tfrecords is not set, so the training examples are evaluated: " + config.pretrain_tfrecords)
        heading("hparams in force")
        say("\n".join(f"{name} {value}" for name, value in config.in_force().items()))
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        from pretrain.pretraining_run import PretrainingRun  # starts TensorFlow

        run = PretrainingRun(config, vocab, shards, held_out, start, cluster)
        return run.train() if config.do_train else run.evaluate()


def _facts(
    config: PretrainingConfig,
    vocab: Vocabulary,
    shards: ShardList,
    held_out: ShardList | None,
    start: model_folder.Start,
) -> dict[str, Any]:
    """What all workers must have alike."""
    return {
        **common_facts(config.in_force()),
        "vocabulary (SHA-256)": vocab.sha256,
        "shards": shards.summary(),
        "shards held out": held_out.summary() if held_out else "none",
        "checkpoint to start from": checkpoint_fact(start.checkpoint),
        "generator's checkpoint": checkpoint_fact(start.generator),
    }


def _load_vocab(config: PretrainingConfig) -> Vocabulary:
    vocab = load_vocab(config.vocab_file)
    if len(vocab) > config.vocab_size:
        raise UserError(
            f"the vocabulary {config.vocab_file} has {len(vocab)} pieces, more than vocab_size "
            f"{config.vocab_size}; set vocab_size to {len(vocab)} (or a little more)"
        )
    if len(vocab) < config.vocab_size:
        say(
            f"note: the vocabulary {config.vocab_file} has {len(vocab)} pieces, vocab_size is {config.vocab_size}: the "
            "last rows of the table stay unused"
        )
    return vocab


if __name__ == "__main__":
    sys.exit(run_main(main))
