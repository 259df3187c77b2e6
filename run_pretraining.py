#!/usr/bin/env python3
"""Pre-trains or evaluates an ELECTRA model: shards of examples to checkpoints, curves and metrics."""

import argparse
import dataclasses
import os
import sys
from contextlib import nullcontext

from configure_pretraining import PretrainingConfig, make_config, validate
from model.tokenization import Vocabulary, load_vocab
from pretrain import model_folder
from pretrain.shards import ShardList, check_examples, check_manifests, find_shards
from util.distribution import choose, read_cluster
from util.errors import UserError, run_main
from util.files import write_json, write_text, writing
from util.folder_lock import FolderLock
from util.hparams import parse_hparams
from util.log import count_text, heading, say, table


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
    parser.add_argument("--data-dir", required=True, help="holds vocab.txt, pretrain_tfrecords/ and models/")
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
    config = make_config(arguments.model_name, arguments.data_dir, passed)
    if config.do_eval and not config.do_train:
        saved = model_folder.saved_shape(config.model_dir)
        config = make_config(arguments.model_name, arguments.data_dir, {**saved, **passed})
    validate(config)
    cluster = read_cluster() if choose(config) == "multi_worker" else None
    chief = cluster is None or cluster["index"] == 0
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
    with FolderLock(config.model_dir) if config.do_train and chief else nullcontext():
        if config.do_train:
            model_folder.check(config, vocab)
            if model_folder.finished(config):
                return 0
        start = model_folder.find_start(config)
        heading("hparams in force")
        say("\n".join(f"{name} {value}" for name, value in config.in_force().items()))
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        run = Run(config, vocab, shards, held_out, start)
        return run.train() if config.do_train else run.evaluate()


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


class Run:
    """A run on its devices: data, networks and their state."""

    def __init__(
        self,
        config: PretrainingConfig,
        vocab: Vocabulary,
        shards: ShardList,
        held_out: ShardList | None,
        start: model_folder.Start,
    ):
        from pretrain.masking import Specials
        from util.distribution import open_devices

        self.config, self.vocab, self.shards, self.held_out = config, vocab, shards, held_out or shards
        self.checkpoint, self.resumed = start
        heading("devices")
        self.devices = open_devices(config)
        self._check_batches()
        self._adopt_positions()
        self.step = self._build(Specials(*(vocab.ids[token] for token in ("[CLS]", "[SEP]", "[MASK]"))))

    def train(self) -> int:
        """Trains to the last step, or until a signal."""
        from util.training import LoopSettings, TrainingLoop

        config, data = self.config, self._reader(self.shards, self.config.train_batch_size)
        start = self._restore()
        model_folder.check_steps(config, start)
        if self.devices.is_chief:
            model_folder.prepare(config, self.vocab, self.shards)
        loop = TrainingLoop(
            self.step,
            self.devices,
            LoopSettings(
                config.num_train_steps,
                config.iterations_per_loop,
                config.save_checkpoints_steps,
                config.keep_checkpoint_max,
                config.log_every_steps,
                config.model_dir,
                config.use_tensorboard,
                config.eval_every_steps,
                self._evaluation,
            ),
        )
        heading(f"training from step {start} to {config.num_train_steps}")
        batches = self.devices.strategy.distribute_datasets_from_function(lambda _: data.training(start))
        with data.explained():
            code = loop.run(iter(batches))
        if code == 0 and loop.now >= config.num_train_steps:
            say(
                f"done: {loop.now} steps, checkpoint in {config.model_dir}, metrics in {config.model_dir}/metrics.jsonl"
            )
        self._say_skipped()
        return code

    def evaluate(self) -> int:
        """Evaluates the folder's last checkpoint and writes the results."""
        from util.training import metrics_text

        step = self._restore()
        values = {**self._evaluation(), "global_step": step}
        say("evaluation: " + metrics_text(values))
        if self.devices.is_chief:
            path = self.config.results_txt
            with writing(f"the results {path}"):
                write_text(path, "".join(f"{name} = {value:.6g}\n" for name, value in sorted(values.items())))
                write_json(os.path.splitext(path)[0] + ".json", values)
            say(f"written to {path} and {os.path.splitext(path)[0]}.json")
        self._say_skipped()
        return 0

    # ---- parts -----------------------------------------------------------------------------------------------------

    def _check_batches(self) -> None:
        parts = {"train_batch_size": self.config.gradient_accumulation_steps, "eval_batch_size": 1}
        for name, pieces in parts.items():
            size, count = getattr(self.config, name), self.devices.replicas * pieces
            if size % count:
                by = f"{self.devices.replicas} replicas" + (f" x {pieces} micro-batches" if pieces > 1 else "")
                raise UserError(f"{name} {size} is not divisible by {by}; take a multiple of {count}")

    def _adopt_positions(self) -> None:
        """The checkpoint's position table sets max_position_embeddings where that is not passed."""
        from model import checkpoints

        config = self.config
        if self.checkpoint and not config.debug and "max_position_embeddings" not in config.model_hparam_overrides:
            shapes = checkpoints.Reader(self.checkpoint).shapes
            rows = shapes.get("electra/embeddings/position_embeddings", [512])[0]
            if rows != config.discriminator_config().max_position_embeddings:
                say(f"note: max_position_embeddings is {rows}, as in {self.checkpoint}")
                config.model_hparam_overrides = {**config.model_hparam_overrides, "max_position_embeddings": rows}
                validate(config)

    def _build(self, specials):
        import tensorflow as tf

        from model.optimization import AdamWeightDecay, learning_rate
        from pretrain.pretraining_model import PretrainingModel, flops_per_step, network_table
        from util.train_step import TrainStep

        config = self.config
        with self.devices.strategy.scope():
            model = PretrainingModel(config, specials)
            optimizer = AdamWeightDecay(model.variables, config.weight_decay_rate)
        heading("networks")
        say(table(*network_table(config, model.variables)))
        tokens = config.train_batch_size * config.max_seq_length
        say(
            f"{count_text(tokens)} tokens and {flops_per_step(config):.3g} FLOPs a step; "
            f"{self.shards.total} examples, an epoch is {self.shards.total / config.train_batch_size:.1f} steps"
        )
        if not config.use_xla and not tf.config.list_physical_devices("GPU") and config.precision == "float32":
            say("note: with use_xla true a step is faster on a CPU, the first one takes longer")
        return TrainStep(
            model,
            optimizer,
            self.devices.strategy,
            lambda step: learning_rate(
                step, config.learning_rate, config.num_train_steps, config.num_warmup_steps, config.lr_decay_power
            ),
            config.gradient_accumulation_steps,
            config.precision == "float16",
            config.use_xla,
            config.released_quirks,
        )

    def _restore(self) -> int:
        from model import checkpoints

        if not self.checkpoint:
            return 0
        slots, state = None, None
        if self.resumed and self.config.do_train:
            slots, state = self.step.optimizer.slots, self.step.state
        report = checkpoints.restore(self.checkpoint, self.step.task.variables, slots, state)
        heading("checkpoint")
        say("\n".join(report.lines()))
        return report.step if self.resumed else 0

    def _reader(self, shards: ShardList, batch_size: int):
        from pretrain.pretrain_data import BatchReader

        return BatchReader(shards, self.config, batch_size, self.devices.replicas, self.devices.mine)

    def _evaluation(self) -> dict[str, float]:
        """Metrics of one pass over the held-out shards, or of its first num_eval_steps batches."""
        import tensorflow as tf

        data = self._reader(self.held_out, self.config.eval_batch_size)
        count = min(data.evaluation_batches, self.config.num_eval_steps or data.evaluation_batches)
        batches = self.devices.strategy.distribute_datasets_from_function(lambda _: data.evaluation())
        with data.explained():
            sums = self.step.evaluate(iter(batches), tf.constant(count)).numpy()
        return self.step.task.results(self.step.unpacked(sums), count)

    def _say_skipped(self) -> None:
        for data in {id(self.shards): self.shards, id(self.held_out): self.held_out}.values():
            if data.skipped:
                say(f"corrupt records skipped: {data.skipped}")


if __name__ == "__main__":
    sys.exit(run_main(main))
