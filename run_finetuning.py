#!/usr/bin/env python3
"""Fine-tunes a pre-trained model on tasks, evaluates it and predicts with it."""

import argparse
import dataclasses
import os
import sys

from configure_finetuning import IGNORED, FinetuningConfig, make_config, validate
from finetune import starting
from finetune.preprocessing import feature_set
from finetune.task_builder import make_tasks
from model.tokenization import FullTokenizer, load_vocab
from util.agreement import common_facts
from util.cluster import Cluster
from util.distribution import choose, read_cluster
from util.errors import run_main
from util.hparams import parse_hparams
from util.log import heading, say


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="hparams and their defaults:\n"
        + "\n".join(
            f"  {field.name} = {field.default_factory() if field.default is dataclasses.MISSING else field.default}"
            for field in dataclasses.fields(FinetuningConfig)[2:]
        )
        + "\nconfigure_finetuning.py says what each of them means.",
    )
    parser.add_argument("--data-dir", required=True, help="holds vocab.txt, finetuning_data/ and models/")
    parser.add_argument("--model-name", required=True, help="names the folder models/<model-name> below it")
    parser.add_argument(
        "--hparams",
        action="append",
        default=[],
        metavar="JSON|FILE|NAME=VALUE",
        help="settings; may be given several times, later ones win",
    )
    return parser.parse_args()


def main() -> int:
    # ---- what is asked for, checked before TensorFlow starts ----
    arguments = parse_arguments()
    passed = parse_hparams(arguments.hparams)
    for name in sorted(passed.keys() & set(IGNORED)):
        say(f"note: hparam {name} is not used: results are written as text and JSON, nothing is pickled")
    config = make_config(arguments.model_name, arguments.data_dir, passed)
    config = make_config(arguments.model_name, arguments.data_dir, passed, starting.adopted(config, passed))
    validate(config)
    workers = read_cluster() if choose(config) == "multi_worker" else None
    with Cluster.of(workers, lambda: "Run the same command on all hosts to go on") as cluster:
        return _run(config, cluster)


def _run(config: FinetuningConfig, cluster: Cluster) -> int:
    vocab = load_vocab(config.vocab_file)
    starting.check_vocab(config, vocab)
    strip_accents = starting.strips_accents(config)
    tokenizer = FullTokenizer(vocab, config.do_lower_case, strip_accents)
    tasks = make_tasks(config, tokenizer)
    starting.check_keep_best(config, tasks)
    models = [] if config.do_train else starting.trained_models(config, tasks)
    if models:
        config.init_checkpoint = models[0][1]
    elif config.init_checkpoint:
        starting.check_checkpoint(config)
    heading("hparams in force")
    say("\n".join(f"{name} {value}" for name, value in config.in_force().items()))
    examples = starting.collect(config, tasks, feature_set)
    trials = starting.open_trials(config, tasks, examples) if config.do_train else []
    cluster.agree({**common_facts(config.in_force()), **starting.facts(config, vocab, tasks, examples, trials)})
    if trials and starting.all_finished(config, trials):
        return 0
    starting.check_folders(config, trials, cluster)

    # ---- the run ----
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from finetune.finetuning_run import FinetuningRun  # starts TensorFlow

    run = FinetuningRun(config, tasks, examples, tokenizer, strip_accents, cluster)
    return run.train_all() if config.do_train else run.evaluate_all(models)


if __name__ == "__main__":
    sys.exit(run_main(main))
