"""A fine-tuning run once it is checked: devices, then each trial's training, evaluation and predictions."""

import dataclasses
import itertools
import math
import os
import time
from contextlib import nullcontext

import tensorflow as tf

from configure_finetuning import FinetuningConfig, validate
from finetune.batches import BatchReader, training_steps
from finetune.finetuning_model import FinetuningModel, is_frozen, rate_factors
from finetune.keeping import BestKeeper
from finetune.memory import estimated, further_freezing
from finetune.predictor import Predictor
from finetune.starting import Examples, further_records, open_trials
from finetune.task import Task
from finetune.trials import Scores, Trial, report, results_lines, seed_of
from model import checkpoints
from model.memory import check_memory
from model.optimization import AdamWeightDecay, learning_rate
from model.tokenization import FullTokenizer
from util import filesystem
from util.cluster import Cluster
from util.distribution import open_devices
from util.errors import UserError
from util.files import writing
from util.folder_lock import FolderLock
from util.log import heading, say, table
from util.train_step import TrainStep
from util.training import LoopSettings, TrainingLoop


class FinetuningRun:
    """A run on its devices.

    Args:
      config: the hparams, checked.
      tasks: what is learned, a head each.
      examples: their features.
      tokenizer: of the model.
      strip_accents: of the tokenizer.
      cluster: the workers that train together.
    """

    def __init__(
        self,
        config: FinetuningConfig,
        tasks: list[Task],
        examples: Examples,
        tokenizer: FullTokenizer,
        strip_accents: bool,
        cluster: Cluster,
    ):
        self.config, self.tasks, self.examples = config, tasks, examples
        self.tokenizer, self.strip_accents = tokenizer, strip_accents
        heading("devices")
        self.devices = open_devices(config, cluster)
        self._adopt_positions()
        if config.do_train:
            self.devices.check_batch("train_batch_size", config.train_batch_size, config.gradient_accumulation_steps)
            check_memory(config, estimated, self.devices, freeze_layers=further_freezing(config))
            count = sum(len(rows) for rows in examples.training.values())
            self.steps = training_steps(count, config.train_batch_size, config.num_train_epochs)
            self.steps_per_epoch = training_steps(count, config.train_batch_size, 1)

    # ---- trials ----------------------------------------------------------------------------------------------------

    def train_all(self) -> int:
        """Trains the trials that are not finished, predicts with all of them, and reports; gives the exit code."""
        records, first = [], open_trials(dataclasses.replace(self.config, num_trials=1), self.tasks, self.examples)[0]
        count = self.config.num_trials
        for number in range(1, count + 1) if count > 0 else itertools.count(1):
            trial = first.another(number)
            with FolderLock(trial.folder) if self.devices.is_chief else nullcontext():
                if trial.record:
                    say(f"trial {number} is finished already: {trial.folder}")
                    self._predict_again(trial)
                else:
                    code = self.train(trial)
                    if code is not None:
                        return code
                self.devices.wait_for_all()
                records.append(trial.finished_record())
                if not self.config.keep_all_models and number > 1 and self.devices.is_chief:
                    first.another(number - 1).remove_checkpoints()
            if self.devices.is_chief:
                report(self.config, records + further_records(self.config, trial))
        return 0

    def evaluate_all(self, models: list[tuple[int, str]]) -> int:
        """Evaluates fine-tuned models (do_eval) and predicts with them (do_predict, write_test_outputs)."""
        records = []
        for number, checkpoint in models:
            heading(f"evaluation of {checkpoint}")
            results = self.evaluate_checkpoint(checkpoint, number)
            record = {"trial": number, "seed": seed_of(checkpoint), "checkpoint": checkpoint}
            records.append({**record, "results": results})
        if self.devices.is_chief:
            base, ending = os.path.splitext(self.config.results_txt)
            report(dataclasses.replace(self.config, results_txt=f"{base}_eval{ending}"), records)
        return 0

    def train(self, trial: Trial) -> int | None:
        """Trains a trial to its end, evaluates it and writes what it leaves.

        Returns:
          None, or the exit code where a signal ended it before.
        """
        start = time.monotonic()
        heading(f"trial {trial.number} of {self.config.num_trials if self.config.num_trials > 0 else 'many'}")
        model = self._model(trial.config)
        step = self._train_step(trial.config, model)
        begun = self._restore(trial, step)
        if self.devices.is_chief:
            trial.prepare(self.tokenizer.vocabulary, self.strip_accents)
        metrics = {task.name: task.metric for task in self.tasks}
        keeper = BestKeeper(trial, model, lambda: self.evaluate(model), metrics, self.devices.is_chief)
        if begun:
            checkpoints.restore(trial.checkpoint, model.variables, state=keeper.state)
        loop = TrainingLoop(step, self.devices, self._settings(trial, keeper))
        say(f"training from step {begun} to {self.steps}, {self.steps_per_epoch} steps an epoch")
        reader = BatchReader(
            self.tasks,
            self.examples.training,
            trial.config,
            self.config.train_batch_size,
            self.devices.replicas,
            self.devices.mine,
        )
        batches = self.devices.strategy.distribute_datasets_from_function(lambda _: reader.training(begun))
        code = loop.run(iter(batches))
        if loop.now < self.steps and not keeper.enough():
            return code
        self.devices.wait_for_all()
        keeper.restore_best()
        results = self.evaluate(model, write=True) if self.config.do_eval else {}
        self._write_outputs(model, trial.number)
        if self.devices.is_chief:
            trial.finish(loop.now, time.monotonic() - start, results)
        for line in results_lines(results):
            say(f"trial {trial.number}: {line}")
        self._flag(trial, results)
        return None

    def evaluate_checkpoint(self, checkpoint: str, number: int) -> Scores:
        """Evaluates (do_eval) and predicts (do_predict, write_test_outputs) with a fine-tuned checkpoint."""
        model = self._model(self.config)
        restored = checkpoints.restore(checkpoint, model.variables)
        if missing := [name for name in restored.fresh if name.startswith("task_specific")]:
            raise UserError(
                f"the checkpoint {checkpoint} lacks the head of {missing[0].split('/')[1]}: it was not fine-tuned on "
                "that task, so there is nothing to evaluate; set do_train true, or init_checkpoint to a fine-tuned one"
            )
        say("\n".join(restored.lines()))
        results = self.evaluate(model, write=True) if self.config.do_eval else {}
        self._write_outputs(model, number)
        for line in results_lines(results):
            say(line)
        return results

    def evaluate(self, model: FinetuningModel, write: bool = False) -> Scores:
        """Metrics of all tasks' evaluation splits; `write` also what the scorers leave beside them."""
        predictor, results = Predictor(model, self.devices), {}
        for number, splits in self.examples.evaluation.items():
            task = self.tasks[number]
            for split, rows in splits.items():
                scorer = task.scorer(split)
                for features, outputs in predictor.rows(
                    number, rows, self.config.eval_batch_size, f"{task.name} {split}"
                ):
                    scorer.update(features, outputs)
                results.setdefault(task.name, {})[split] = scorer.results()
                if write and self.devices.is_chief:
                    for path in scorer.write(self.config):
                        say(f"written: {path}")
        return results

    # ---- parts -----------------------------------------------------------------------------------------------------

    def _adopt_positions(self) -> None:
        """The checkpoint's position table sets max_position_embeddings where that is not passed."""
        config = self.config
        if config.init_checkpoint and "max_position_embeddings" not in config.model_hparam_overrides:
            rows = checkpoints.position_rows(checkpoints.find(config.init_checkpoint))
            if rows not in (None, config.network().max_position_embeddings):
                say(f"note: max_position_embeddings is {rows}, as in {config.init_checkpoint}")
                config.model_hparam_overrides = {**config.model_hparam_overrides, "max_position_embeddings": rows}
                validate(config)

    def _predict_again(self, trial: Trial) -> None:
        """Predictions that were asked for after the trial was finished."""
        if any(self.examples.prediction.values()):
            if trial.weights is None:
                raise UserError(
                    f"{trial.folder} holds no checkpoint any more (keep_all_models false), so nothing can be predicted "
                    "with it; take another model_dir, or overwrite true to train anew"
                )
            model = self._model(trial.config)
            checkpoints.restore(trial.weights, model.variables)
            self._write_outputs(model, trial.number)

    def _model(self, config: FinetuningConfig) -> FinetuningModel:
        with self.devices.strategy.scope():
            return FinetuningModel(config, self.tasks)

    def _train_step(self, config: FinetuningConfig, model: FinetuningModel) -> TrainStep:
        layers = config.network().num_hidden_layers
        factors = rate_factors(list(model.variables), layers, config.layerwise_lr_decay)
        moving = {n: v for n, v in model.variables.items() if not is_frozen(n, layers, config.freeze_layers)}
        optimizer = AdamWeightDecay(
            moving,
            config.weight_decay_rate,
            factors,
            slot_dtype=tf.bfloat16 if config.bfloat16_slots else tf.float32,
            strategy=self.devices.strategy,
        )
        steps, warmup = self.steps, config.warmup_proportion * self.steps
        heads = {task.name: f"task_specific/{task.head_name}/" for task in self.tasks}
        sizes = {name: int(tf.size(variable)) for name, variable in model.variables.items()}
        rows = [["encoder", f"{sum(n for name, n in sizes.items() if name.startswith('electra/')):,}"]]
        rows += [
            [f"head of {task}", f"{sum(n for name, n in sizes.items() if name.startswith(prefix)):,}"]
            for task, prefix in heads.items()
        ]
        if frozen := sum(sizes.values()) - sum(sizes[name] for name in moving):
            rows.append(["frozen of these", f"{frozen:,}"])
        say(table(["network", "parameters"], rows))
        return TrainStep(
            model,
            optimizer,
            self.devices.strategy,
            lambda step: learning_rate(step, config.learning_rate, steps, warmup, config.lr_decay_power),
            config.gradient_accumulation_steps,
            config.precision == "float16",
            config.use_xla,
            config.released_quirks,
        )

    def _restore(self, trial: Trial, step: TrainStep) -> int:
        """Gives the step to go on from."""
        variables = step.task.variables
        if trial.checkpoint:
            report = checkpoints.restore(trial.checkpoint, variables, step.optimizer.slots, step.state)
            say(f"going on from {trial.checkpoint}")
            return report.step
        if self.config.init_checkpoint:
            report = checkpoints.restore(checkpoints.find(self.config.init_checkpoint), variables)
            say("\n".join(report.lines()))
        else:
            say("random weights: there is no init_checkpoint")
        return 0

    def _settings(self, trial: Trial, keeper: BestKeeper) -> LoopSettings:
        config = trial.config
        every = config.eval_every_steps or (self.steps_per_epoch if keeper.wanted else 0)
        return LoopSettings(
            self.steps,
            config.iterations_per_loop,
            config.save_checkpoints_steps,
            1,
            config.log_every_steps,
            trial.folder,
            config.use_tensorboard,
            every,
            keeper.evaluate,
            keeper.enough,
            keeper.state,
        )

    def _write_outputs(self, model: FinetuningModel, trial: int) -> None:
        """Predictions: do_predict in every trial, the test splits in the first n_writes_test."""
        predictor = Predictor(model, self.devices)
        for number, splits in self.examples.prediction.items():
            task = self.tasks[number]
            for split, rows in splits.items():
                asked = self.config.do_predict and split == self.config.predict_split
                if not asked and trial > self.config.n_writes_test:
                    continue
                found = list(predictor.rows(number, rows, self.config.predict_batch_size, f"{task.name} {split}"))
                if not self.devices.is_chief:
                    continue
                path = self.config.predictions_path(task.name, split, trial)
                with writing(f"the predictions {path}"):
                    filesystem.makedirs(os.path.dirname(path))
                    paths = task.write_predictions(split, found, path)
                for path in paths:
                    say(f"written: {path}")

    def _flag(self, trial: Trial, results: Scores) -> None:
        """Says where a trial has learned nothing: its dev metric is no better than chance."""
        for task in self.tasks:
            splits = results.get(task.name, {})
            split = next(iter(splits), "dev")
            value = splits.get(split, {}).get(task.metric.name)
            for name in (name for scores in splits.values() for name, score in scores.items() if math.isnan(score)):
                say(f"warning: trial {trial.number}: {task.name} has no {name}: all values or all predictions are one")
            chance = task.metric.chance
            if value is not None and chance is not None and value <= chance + 0.01 * task.metric.scale:
                say(
                    f"warning: trial {trial.number} failed to train: {task.name} has {task.metric.name} {value:.2f} on "
                    f"{split}, chance is {chance:.2f}"
                )
