"""The training loop that pre-training and fine-tuning share: steps, checkpoints, logs, signals, evaluation."""

import json
import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from model import checkpoints
from util import filesystem
from util.distribution import Devices
from util.errors import UserError
from util.files import write_text, writing
from util.log import say
from util.progress import Progress
from util.saving import CheckpointSaver
from util.train_step import MAX_BAD_STEPS, TrainStep

LOOP_SECONDS = 2.0  # about how long the loop stays inside TensorFlow before it looks at signals and the clock
INTERRUPTED = 128 + signal.SIGINT


@dataclass
class LoopSettings:
    """How far and how often."""

    steps: int  # the last step
    iterations_per_loop: int  # the most steps at once
    save_every: int
    keep: int | None  # checkpoints; 0 or None: all
    log_every: int
    folder: str  # of checkpoints and logs
    use_tensorboard: bool = True
    evaluate_every: int = 0
    evaluate: Callable[[], dict[str, float]] | None = None  # held-out metrics, where evaluate_every is not 0
    enough: Callable[[], bool] | None = None  # asked after each evaluation: whether to end before the last step
    state: dict[str, tf.Variable] = field(default_factory=dict)  # what a checkpoint keeps beside the step's state
    before: dict[int, Callable[[], None]] = field(default_factory=dict)  # what is done before some steps


class MetricsLog:
    """metrics.jsonl and TensorBoard scalars of a model folder.

    A line a record: {"step", "time" (seconds since 1970), "split" ("train" or "eval"), metric: value, ...}.
    """

    def __init__(self, folder: str, step: int, use_tensorboard: bool):
        self.path = os.path.join(folder, "metrics.jsonl")
        self._cut_back(step)
        self.writers = self._open_events(os.path.join(folder, "tensorboard")) if use_tensorboard else {}

    @staticmethod
    def _open_events(folder: str) -> dict[str, tf.summary.SummaryWriter]:
        try:
            return {split: tf.summary.create_file_writer(os.path.join(folder, split)) for split in ("train", "eval")}
        except tf.errors.OpError as error:
            raise UserError(
                f"cannot write TensorBoard's events in {folder}: {error.message.splitlines()[0]}; move it away or set "
                "use_tensorboard false"
            ) from error

    def write(self, step: int, split: str, values: dict[str, float]) -> None:
        """Appends one record; a value that is not finite is written as null."""
        finite = {name: value if math.isfinite(value) else None for name, value in values.items()}
        with writing(self.path), filesystem.open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "time": round(time.time(), 3), "split": split, **finite}) + "\n")
        if split in self.writers:
            with self.writers[split].as_default(step=step):
                for name, value in values.items():
                    tf.summary.scalar(name, value)
            self.writers[split].flush()

    def _cut_back(self, step: int) -> None:
        """Drops what a killed run logged after the checkpoint that training goes on from, and a half last line."""
        if not filesystem.exists(self.path):
            return
        with writing(self.path), filesystem.open(self.path, encoding="utf-8", errors="replace") as file:
            lines = file.readlines()
        steps = [_step_of(line) for line in lines]
        if damaged := steps[:-1].count(None):
            say(f"note: {damaged} lines of {self.path} are no records and are dropped")
        kept = [line for line, found in zip(lines, steps) if found is not None and found <= step]
        if kept != lines:
            with writing(self.path):
                write_text(self.path, "".join(kept))


def _step_of(line: str) -> int | None:
    """The step of a line of metrics.jsonl; None where it is half a line or no record."""
    try:
        record = json.loads(line) if line.endswith("\n") else None
    except ValueError:
        return None
    step = record.get("step") if isinstance(record, dict) else None
    return step if isinstance(step, int) else None


class StopSignals:
    """Notes SIGTERM and SIGINT in a `with` block; a second SIGINT interrupts at once.

    A handler runs between any two lines of Python, so it does nothing but take the note.
    """

    def __init__(self):
        self.received: int | None = None

    def __enter__(self) -> "StopSignals":
        self.before = {number: signal.signal(number, self._handle) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *exception) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _handle(self, number, frame):
        self.received = number
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, self.before[signal.SIGINT])


class TrainingLoop:
    """Trains a task from its restored state to the last step.

    Args:
      step: the compiled step, whose task, optimizer and state are restored already.
      devices: of the run; the chief alone writes.
      settings: how far and how often.
    """

    def __init__(self, step: TrainStep, devices: Devices, settings: LoopSettings):
        self.step, self.devices, self.settings = step, devices, settings
        self.saved = {**step.task.variables, **step.optimizer.slots, **step.state, **settings.state}
        self.now = int(step.step.numpy())
        if devices.is_chief:
            devices.note(settings.folder, self.now)
        self.saver = CheckpointSaver(settings.folder, settings.keep) if devices.is_chief else None
        self.log = MetricsLog(settings.folder, self.now, settings.use_tensorboard) if devices.is_chief else None

    def run(self, iterator: Iterator[Any]) -> int:
        """Trains.

        Returns:
          The process's exit code: 0 when the last step is done or after SIGTERM, 130 after SIGINT.

        Raises:
          UserError: too many non-finite steps in a row, or a checkpoint that cannot be written.
        """
        try:
            with StopSignals() as signals:
                stopped = self._loop(iterator, signals)
                self._save()
                if self.saver:
                    self.saver.wait()
        finally:
            if self.saver:
                self.saver.close()
        if not stopped:
            return 0
        say(
            f"stopped at step {self.now} of {self.settings.steps}; the checkpoint is saved, the same command goes on "
            "from there"
        )
        return INTERRUPTED if signals.received == signal.SIGINT else 0

    def _loop(self, iterator, signals: StopSignals) -> bool:
        settings, window, chunk, progress = self.settings, Window(), 1, None
        stopped = False
        while self.now < settings.steps and not stopped and not (settings.enough and settings.enough()):
            if signals.received:
                say(f"\n{signal.Signals(signals.received).name} received: a step ends, then a checkpoint is saved")
                self.step.stop.assign(1.0)  # with several workers all of them hear of it in the same step
            if self.now in settings.before:
                settings.before[self.now]()
            count = min(chunk, *(every - self.now % every for every in self._intervals()), self._next_stop() - self.now)
            start = time.monotonic()
            done, stop, sums = self.step.run(iterator, tf.constant(count))
            done, stopped, sums = int(done), bool(stop), sums.numpy()
            seconds = time.monotonic() - start
            self._check_finite()
            self.now += done
            window.add(sums, done, seconds)
            progress = self._report(progress, sums, done, seconds)
            if progress.first != self.now:  # the first step's time is mostly compilation
                chunk = max(1, min(settings.iterations_per_loop, int(LOOP_SECONDS * done / seconds)))
            window = self._at_intervals(window, stopped)
        if progress:
            progress.close()
        return stopped

    def _next_stop(self) -> int:
        return min([step for step in self.settings.before if step > self.now] + [self.settings.steps])

    def _intervals(self) -> list[int]:
        every = [self.settings.save_every, self.settings.log_every, self.settings.iterations_per_loop]
        return [*every, self.settings.evaluate_every] if self.settings.evaluate_every else every

    def _at_intervals(self, window: "Window", stopped: bool) -> "Window":
        """Logs, evaluates and saves where the step count says so; gives the window of metrics that goes on."""
        settings = self.settings
        if self.now % settings.log_every == 0 or self.now == settings.steps:
            self._log_training(window)
            window = Window()
        if settings.evaluate_every and (self.now % settings.evaluate_every == 0 or self.now == settings.steps):
            values = settings.evaluate()
            if self.log:
                self.log.write(self.now, "eval", values)
            say(f"held-out at step {self.now}: " + metrics_text(values))
        if self.now % settings.save_every == 0 and self.now < settings.steps and not stopped:
            self._save()
        return window

    def _save(self) -> None:
        if self.saver:
            self.saver.save(self.now, self.saved)

    def _report(self, progress: Progress | None, sums, done: int, seconds: float) -> Progress:
        if progress is None:
            say(f"first step after {seconds:.1f} s (compilation included)")
            return Progress("training", self.settings.steps, "steps", done=self.now)
        values = self._values(sums)
        tokens = sums_of(self.step, sums)["tokens"] / seconds
        note = f"{tokens:.0f} tokens/s, " + metrics_text(values)
        if skipped := int(self.step.skipped.numpy()):
            note += f", {skipped} steps skipped"
        progress.update(self.now, note)
        return progress

    def _values(self, sums) -> dict[str, float]:
        return self.step.task.results(sums_of(self.step, sums), int(sums[-2]))

    def _log_training(self, window: "Window") -> None:
        if not self.log or window.steps == 0:
            return
        good = int(window.sums[-2])
        values = self._values(window.sums) if good else {"loss": math.nan}
        last = tf.constant(self.now - 1, tf.int64)
        self.log.write(
            self.now,
            "train",
            {
                **values,
                "learning_rate": float(self.step.rate(last)),
                "gradient_norm": float(window.sums[-1]) / max(1, good),
                "tokens_per_second": float(sums_of(self.step, window.sums)["tokens"]) / window.seconds,
                "steps_per_second": window.steps / window.seconds,
                "skipped_steps": int(self.step.skipped.numpy()),
            },
        )

    def _check_finite(self) -> None:
        bad = int(self.step.bad_in_a_row.numpy())
        if bad > MAX_BAD_STEPS:
            if self.saver:
                self.saver.wait()
            last = checkpoints.find(self.settings.folder)
            raise UserError(
                f"{bad} steps in a row had a loss or gradient that is not finite (the last was step "
                f"{int(self.step.step.numpy())}); their updates were dropped. The last good checkpoint is "
                f"{last or 'none'}. Lower learning_rate, use precision float32, or look at the data, then run "
                "again"
            )


class Window:
    """Metric sums over the steps since the last line of the log."""

    def __init__(self):
        self.sums, self.steps, self.seconds = 0.0, 0, 0.0

    def add(self, sums, steps: int, seconds: float) -> None:
        self.sums, self.steps, self.seconds = self.sums + sums, self.steps + steps, self.seconds + seconds


def sums_of(step: TrainStep, vector) -> dict[str, Any]:
    """The named metric sums at the head of a vector."""
    return step.unpacked(vector[: step.width])


def metrics_text(values: dict[str, float]) -> str:
    """Metrics for a line of text: "loss: 12.3 - disc_auc: 0.81"."""
    return " - ".join(f"{name}: {value:.4g}" for name, value in values.items())
