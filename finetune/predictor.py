"""What a model's heads say of examples, on all devices, in the examples' order."""

import functools
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from finetune.batches import BatchReader, Rows
from finetune.feature_spec import Features
from finetune.finetuning_model import Batch, FinetuningModel
from finetune.task import Outputs
from util.distribution import Devices
from util.progress import Progress


class Predictor:
    """Runs one task's head over sets of examples.

    Args:
      model: encoder and heads.
      devices: of the run.
    """

    def __init__(self, model: FinetuningModel, devices: Devices):
        self.model, self.devices = model, devices

    def rows(self, task: int, rows: Rows, batch_size: int, what: str) -> Iterator[tuple[Features, Outputs]]:
        """Features and outputs of every example, none left out, none twice.

        Args:
          task: its number.
          rows: the examples.
          batch_size: global.
          what: for the progress, e.g. "mnli dev".
        """
        if not len(rows):
            return
        devices, size = self.devices, min(batch_size, len(rows))  # more would be fillers alone
        reader = BatchReader(self.model.tasks, {task: rows}, self.model.config, size, devices.replicas, devices.mine)
        batches = iter(devices.strategy.distribute_datasets_from_function(lambda _: reader.evaluation()))
        progress, done = Progress(f"predicting {what}", len(rows), "examples"), 0
        for _ in range(reader.evaluation_batches):
            outputs = {name: value.numpy() for name, value in self._step(task)(batches).items()}
            for i in range(min(reader.batch_size, len(rows) - done)):
                features = rows[done + i]
                yield features, _of_example({name: value[i] for name, value in outputs.items()}, features)
            done = min(done + reader.batch_size, len(rows))
            progress.update(done)
        progress.close()

    @functools.lru_cache  # noqa: B019 - a predictor lives as long as its model
    def _step(self, task: int):
        """A function that takes an iterator and gives the outputs for a global batch."""
        strategy = self.devices.strategy

        def outputs_of(features):
            head = self.model.head_outputs(Batch(features, None), only=task)[0]
            return {**head.outputs, "loss": head.losses}

        @functools.partial(tf.function, jit_compile=self.model.config.use_xla, autograph=False)
        def compiled(features):
            return outputs_of(features)

        @functools.partial(tf.function, autograph=False)
        def step(iterator):
            outputs = strategy.run(compiled, args=(next(iterator),))
            if self.devices.replicas == 1:
                return outputs
            return {name: strategy.gather(value, axis=0) for name, value in outputs.items()}

        return step


def _of_example(outputs: Outputs, features: Features) -> Outputs:
    """Outputs of positions without those of the padding."""
    length = len(features["input_ids"])
    return {
        name: np.asarray(value[:length] if name in ("start_logits", "end_logits") else value)
        for name, value in outputs.items()
    }
