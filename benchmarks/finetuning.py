#!/usr/bin/env python3
"""What fine-tuning costs: batches by length against fixed padding, the joint QA head against its tiled form, features.

    python benchmarks/finetuning.py --data-dir DATA [--model-name NAME] [--tasks cola mrpc rte chunk]

Bucketing: one epoch of each task (at most --steps steps), each side a process of its own, no dropout, the same
examples in the same steps; prints seconds a step (median over the steps after the fifth, a length's first use apart),
their ratio, and the largest relative differences of a step's loss and of its gradient's norm. The learning rate is 0,
so that these depend on that step alone: with another the two runs drift apart, as any two orders of summation do.

The QA head: one evaluation of random hidden states, plain and with XLA. Features: all training questions of squad, CPU
seconds, against the definition word by word on --questions of them.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True, help="holds finetuning_data/ and vocab.txt")
    parser.add_argument("--model-name", help="a pre-trained model below it; default: small, random weights")
    parser.add_argument("--tasks", nargs="*", default=["cola", "mrpc", "rte", "chunk"])
    parser.add_argument("--steps", type=int, default=1_000_000, help="of an epoch, at most")
    parser.add_argument("--beam", type=int, default=20)
    parser.add_argument("--length", type=int, default=384)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--batch", type=int, default=4, help="of the QA head")
    parser.add_argument("--questions", type=int, default=200, help="featurized by the definition")
    parser.add_argument("--part", help=argparse.SUPPRESS)  # one measurement, in this process
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    if arguments.part:
        kind, _, what = arguments.part.partition("/")
        print(json.dumps({"epoch": epoch, "head": head, "features": features}[kind](arguments, what)))
        return 0
    from util.log import say, table

    rows = []
    for task in arguments.tasks:
        fixed, buckets = (measured(f"epoch/{task}/{side}") for side in ("fixed", "buckets"))
        differences = [
            max(abs(one - other) / abs(one) for one, other in zip(fixed[name], buckets[name], strict=True))
            for name in ("losses", "norms")
        ]
        seconds = [f"{side['median_s']:.3f}" for side in (fixed, buckets)]
        total = [f"{side['total_s']:.0f}" for side in (fixed, buckets)]
        ratio, whole = fixed["median_s"] / buckets["median_s"], fixed["total_s"] / buckets["total_s"]
        steps = len(fixed["losses"])
        rows.append([task, steps, *seconds, f"{ratio:.2f}", *total, f"{whole:.2f}", *map("{:.1e}".format, differences)])
        say(f"{task}: fixed padding {seconds[0]} s a step, buckets {seconds[1]} s")
    if rows:
        header = ["task", "steps", "fixed s/step", "buckets s/step", "ratio", "fixed s", "buckets s", "ratio"]
        say(table([*header, "losses", "norms"], rows))
    rows = []
    for jit in ("", "xla"):
        tiled, split = (measured(f"head/{side}/{jit}") for side in ("tiled", "split"))
        rows.append(
            [
                jit or "plain",
                f"{1000 * tiled['seconds']:.0f}",
                f"{1000 * split['seconds']:.0f}",
                f"{tiled['seconds'] / split['seconds']:.1f}",
                tiled["peak_mb"],
                split["peak_mb"],
                f"{split['peak_mb'] / tiled['peak_mb']:.2f}",
                f"{max(abs(a - b) for a, b in zip(tiled['logits'], split['logits'])):.1e}",
            ]
        )
    say(f"joint QA head: beam {arguments.beam}, length {arguments.length}, hidden {arguments.hidden}, "
        f"batch {arguments.batch}, {os.cpu_count()} CPUs")  # fmt: skip
    say(table(["", "tiled ms", "split ms", "ratio", "tiled MB", "split MB", "ratio", "difference"], rows))
    found = measured("features/squad")
    say(
        f"features of squad, {found['questions']} questions: {found['fast_s']:.2f} CPU s, by the definition "
        f"{found['definition_s']:.2f} CPU s (from {arguments.questions} of them): {found['ratio']:.1f} times"
    )
    return 0


def measured(part: str) -> dict:
    """One measurement in a process of its own."""
    command = [sys.executable, __file__, *sys.argv[1:], "--part", part]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{run.stderr}")
    return json.loads(run.stdout.strip().splitlines()[-1])


def epoch(arguments: argparse.Namespace, what: str) -> dict:
    """Times the steps of one epoch of a task."""
    task_name, _, side = what.partition("/")
    from configure_finetuning import make_config
    from finetune import starting
    from finetune.preprocessing import feature_set
    from finetune.task_builder import make_tasks
    from model.tokenization import FullTokenizer

    hparams = {"task_names": [task_name], "bucketing": side == "buckets"}
    model = {} if arguments.model_name else {"init_checkpoint": None}
    name = arguments.model_name or "benchmark"
    config = make_config(name, arguments.data_dir, {**hparams, **model})
    config = make_config(name, arguments.data_dir, {**hparams, **model}, starting.adopted(config, hparams))
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config.model_hparam_overrides = {**config.model_hparam_overrides, **off}
    tasks = make_tasks(config, FullTokenizer(config.vocab_file, config.do_lower_case))
    rows = feature_set(tasks[0], "train", True, config, progress=False)
    return timed_steps(arguments, config, tasks, rows)


def timed_steps(arguments: argparse.Namespace, config, tasks, rows) -> dict:
    """Losses and seconds of the steps; a head without its own dropout, so that both sides compute the same."""
    import tensorflow as tf

    from finetune.batches import BatchReader, TrainingOrder, training_steps
    from finetune.classification import classification_heads
    from finetune.finetuning_model import FinetuningModel, rate_factors
    from model import checkpoints
    from model.optimization import AdamWeightDecay, learning_rate
    from util.cluster import Cluster
    from util.distribution import open_devices
    from util.train_step import TrainStep

    classification_heads.POOLED_DROPOUT = 0.0
    strategy = open_devices(config, Cluster()).strategy
    model = FinetuningModel(config, tasks)
    if config.init_checkpoint:
        checkpoints.restore(checkpoints.find(config.init_checkpoint), model.variables)
    factors = rate_factors(list(model.variables), config.network().num_hidden_layers, config.layerwise_lr_decay)
    steps = training_steps(len(rows), config.train_batch_size, 1)
    step = TrainStep(
        model,
        AdamWeightDecay(model.variables, config.weight_decay_rate, factors),
        strategy,
        lambda s: learning_rate(s, 0.0, steps, 0.1 * steps),
    )
    reader = BatchReader(tasks, {0: rows}, config, config.train_batch_size)
    order = TrainingOrder(len(reader), reader.batch_size, config.seed)
    iterator, losses, norms, times, lengths = iter(reader.training(0)), [], [], [], set()
    for number in range(min(steps, arguments.steps)):
        start = time.perf_counter()
        sums = step.run(iterator, tf.constant(1))[2].numpy()
        seconds = time.perf_counter() - start
        losses.append(float(step.unpacked(sums[: step.width])["loss"]))
        norms.append(float(sums[-1]))
        length = reader.bucket(order.rows(number))
        if number >= 5 and length in lengths:
            times.append(seconds)
        lengths.add(length)
    seconds = sum(times) / len(times) * len(losses)
    return {"losses": losses, "norms": norms, "median_s": statistics.median(times), "total_s": seconds}


def head(arguments: argparse.Namespace, what: str) -> dict:
    """Times the ends given each start of the beam, and takes the memory that it needs beyond what was there before."""
    side, _, jit = what.partition("/")
    import tensorflow as tf

    from configure_finetuning import make_config
    from finetune.qa.qa_heads import QAHead
    from model.modeling import Initializer, gelu

    config = make_config("m", "d", {"task_names": ["squad"], "beam_size": arguments.beam})
    layer = QAHead("squad", arguments.hidden, config, True, Initializer(0, 0.02))
    layer.build()

    def tiled(hidden, starts):
        """The same by its definition: a layer over [start, token] for every start and token."""
        length, beam = hidden.shape[1], starts.shape[1]
        both = [tf.tile(starts[:, :, None], [1, 1, length, 1]), tf.tile(hidden[:, None], [1, beam, 1, 1])]
        return tf.squeeze(layer.end(gelu(layer.qa_hidden(tf.concat(both, -1)))), -1)

    function = tf.function(tiled if side == "tiled" else layer.end_logits, jit_compile=bool(jit), autograph=False)
    tf.random.set_seed(0)
    hidden = tf.random.stateless_normal([arguments.batch, arguments.length, arguments.hidden], [1, 2])
    starts = tf.random.stateless_normal([arguments.batch, arguments.beam, arguments.hidden], [3, 4])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    logits = function(hidden, starts).numpy().ravel()
    times = []
    for _ in range(7):
        start = time.perf_counter()
        function(hidden, starts).numpy()
        times.append(time.perf_counter() - start)
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    return {"seconds": statistics.median(times), "peak_mb": peak, "logits": logits[:: len(logits) // 50].tolist()}


def features(arguments: argparse.Namespace, what: str) -> dict:
    """Times the features of squad's training questions, and of some of them by the definition."""
    from configure_finetuning import make_config
    from finetune.qa.word_by_word import featurize_word_by_word
    from finetune.task_builder import make_tasks
    from model.tokenization import FullTokenizer

    config = make_config("m", arguments.data_dir, {"task_names": [what], "init_checkpoint": None})
    task = make_tasks(config, FullTokenizer(config.vocab_file))[0]
    examples = task.examples("train")
    start = time.process_time()
    for example in examples:
        task.featurize(example, True)
    fast = time.process_time() - start
    some = examples[:: max(1, len(examples) // arguments.questions)]
    start = time.process_time()
    expected = [featurize_word_by_word(task.featurizer, example) for example in some]
    definition = (time.process_time() - start) * len(examples) / len(some)
    if expected != [task.featurize(example, True) for example in some]:
        raise SystemExit("the features differ from those of the definition")
    return {"questions": len(examples), "fast_s": fast, "definition_s": definition, "ratio": definition / fast}


if __name__ == "__main__":
    sys.exit(main())
