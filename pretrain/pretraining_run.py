"""A pre-training run once it is checked: devices, networks, state, then training or evaluation."""

import os

import numpy as np
import tensorflow as tf

from configure_pretraining import PretrainingConfig, validate
from model import checkpoints, parts
from model.memory import check_memory
from model.optimization import AdamWeightDecay, learning_rate
from model.tokenization import Vocabulary
from pretrain import model_folder
from pretrain.flops import training_flops
from pretrain.masking import Specials
from pretrain.memory import estimated, logits_fault
from pretrain.parameter_counts import network_table
from pretrain.pretrain_data import BatchReader
from pretrain.pretraining_model import PretrainingModel
from pretrain.shards import ShardList
from pretrain.token_counts import count_tokens
from util.cluster import Cluster
from util.distribution import open_devices
from util.errors import UserError
from util.files import write_json, write_text, writing
from util.log import count_text, heading, say, table
from util.train_step import TrainStep
from util.training import LoopSettings, TrainingLoop, metrics_text


class PretrainingRun:
    """A run on its devices: data, networks and their state.

    Args:
      config: the hparams, checked.
      vocab: of the shards.
      shards: what is trained on; `held_out`: what is evaluated on, where it is another set.
      start: the checkpoint to go on from, if any.
      cluster: the workers that train together.
    """

    def __init__(
        self,
        config: PretrainingConfig,
        vocab: Vocabulary,
        shards: ShardList,
        held_out: ShardList | None,
        start: model_folder.Start,
        cluster: Cluster,
    ):
        self.config, self.vocab, self.shards, self.held_out = config, vocab, shards, held_out or shards
        self.checkpoint, self.resumed, self.generator_checkpoint = start
        heading("devices")
        self.devices = open_devices(config, cluster)
        self.devices.check_batch("train_batch_size", config.train_batch_size, config.gradient_accumulation_steps)
        self.devices.check_batch("eval_batch_size", config.eval_batch_size)
        if fault := logits_fault(config, self.devices.replicas):
            raise UserError(fault)
        self._adopt_positions()
        if config.do_train:
            check_memory(config, estimated, self.devices)
        self.step = self._build(specials_of(vocab, config.vocab_size))

    def train(self) -> int:
        """Trains to the last step, or until a signal."""
        config, data = self.config, self._reader(self.shards, self.config.train_batch_size)
        start = self._restore()
        model_folder.check_steps(config, start)
        self._begin(start)
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
                before={border: lambda: self._begin(border)} if (border := config.generator_steps) else {},
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
        step = self._restore()
        self._begin(step)
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

    def _adopt_positions(self) -> None:
        """The checkpoint's position table sets max_position_embeddings where that is not passed."""
        config, source = self.config, self.checkpoint or self.generator_checkpoint
        if source and not config.debug and "max_position_embeddings" not in config.model_hparam_overrides:
            rows = checkpoints.position_rows(source)
            if rows not in (None, config.discriminator_config().max_position_embeddings):
                say(f"note: max_position_embeddings is {rows}, as in {source}")
                config.model_hparam_overrides = {**config.model_hparam_overrides, "max_position_embeddings": rows}
                validate(config)

    def _build(self, specials):
        config, counts = self.config, self._token_counts(specials)
        try:
            with self.devices.strategy.scope():
                model = PretrainingModel(config, specials, counts)
            optimizer = AdamWeightDecay(
                model.variables,
                config.weight_decay_rate,
                slot_dtype=tf.bfloat16 if config.bfloat16_slots else tf.float32,
                strategy=self.devices.strategy,
            )
        except tf.errors.ResourceExhaustedError as error:
            raise UserError(
                f"the networks do not fit into memory ({error.message.splitlines()[0]}); choose a smaller model_size, "
                "hidden_size or vocab_size"
            ) from error
        heading("networks")
        say(table(*network_table(config)))
        tokens = config.train_batch_size * config.max_seq_length
        say(
            f"{count_text(tokens)} tokens and {training_flops(config, 1):.3g} FLOPs a step; "
            f"{self.shards.total} examples, an epoch is {self.shards.total / config.train_batch_size:.1f} steps"
        )
        return TrainStep(
            model,
            optimizer,
            self.devices.strategy,
            self._rate,
            config.gradient_accumulation_steps,
            config.precision == "float16",
            config.use_xla,
            config.released_quirks,
            model.frozen,
        )

    def _begin(self, step: int) -> None:
        """Enters the stage that a step belongs to."""
        self.step.task.begin(step)
        self.step.retrace()

    def _rate(self, step: tf.Tensor) -> tf.Tensor:
        """The learning rate of a step; each stage has a schedule of its own."""
        config, border = self.config, self.config.generator_steps or 0

        def rate(step, steps):
            return learning_rate(
                step, config.learning_rate, steps, config.num_warmup_steps, config.lr_decay_power
            )

        last = rate(step - border, config.num_train_steps - border)
        return tf.where(step < border, rate(step, border), last) if border else last

    def _token_counts(self, specials: Specials) -> np.ndarray | None:
        """How often the training shards have each token, where the generator samples by that."""
        if self.config.generator != "unigram":
            return None
        config, left_out = self.config, (specials.cls, specials.sep, specials.mask)
        return count_tokens(config.pretrain_tfrecords, config, left_out, cache=self.devices.is_chief)

    def _restore(self) -> int:
        if self.checkpoint or self.generator_checkpoint:
            heading("checkpoint")
        slots, state, step = None, None, 0
        if self.resumed and self.config.do_train:
            slots, state = self.step.optimizer.slots, self.step.state
        if self.checkpoint:
            report = checkpoints.restore(self.checkpoint, self._mine(), slots, state)
            say("\n".join(report.lines()))
            step = report.step if self.resumed else 0
        if self.generator_checkpoint:
            say("\n".join(self._restore_generator().lines()))
        return step

    def _mine(self) -> dict[str, tf.Variable]:
        """The variables that the first checkpoint is for: not the generator's, where that has one of its own."""
        own = self.generator_checkpoint is not None
        return {name: v for name, v in self.step.task.variables.items() if not (own and name.startswith("generator"))}

    def _restore_generator(self) -> checkpoints.Report:
        """init_generator_checkpoint: the generator's variables, and shared embeddings that nothing else sets."""
        variables = self.step.task.variables
        untied = self.config.weight_sharing != "embeddings"
        wanted = ("generator",) if self.checkpoint or untied else ("generator", "electra/embeddings/")
        reader = parts.generator_of(
            checkpoints.open_reader(self.generator_checkpoint), tables="generator" if untied else "electra"
        )
        return checkpoints.restore(reader, {n: v for n, v in variables.items() if n.startswith(wanted)})

    def _reader(self, shards: ShardList, batch_size: int):
        return BatchReader(shards, self.config, batch_size, self.devices.replicas, self.devices.mine)

    def _evaluation(self) -> dict[str, float]:
        """Metrics of one pass over the held-out shards, or of its first num_eval_steps batches."""
        replicas = self.devices.replicas
        enough = -(-self.held_out.total // replicas) * replicas  # more would be fillers alone
        data = self._reader(self.held_out, min(self.config.eval_batch_size, enough))
        count = min(data.evaluation_batches, self.config.num_eval_steps or data.evaluation_batches)
        batches = self.devices.strategy.distribute_datasets_from_function(lambda _: data.evaluation())
        with data.explained():
            sums = self.step.evaluate(iter(batches), tf.constant(count)).numpy()
        return self.step.task.results(self.step.unpacked(sums), count)

    def _say_skipped(self) -> None:
        for data in {id(self.shards): self.shards, id(self.held_out): self.held_out}.values():
            if data.skipped:
                say(f"corrupt records skipped: {data.skipped}")


def specials_of(vocab: Vocabulary, vocab_size: int) -> Specials:
    """The ids that an objective must know, and which of `vocab_size` pieces go on with a word."""
    joined = np.zeros([vocab_size], bool)
    joined[: len(vocab)] = [token.startswith("##") for token in vocab.tokens]
    return Specials(*(vocab.ids[token] for token in ("[CLS]", "[SEP]", "[MASK]")), joined)
