"""One optimizer step over all replicas and micro-batches, and many of them inside one tf.function.

Order: local sums over all-reduced weights, gradients, all-reduce, *then* clipping, the finite check and the update.
"""

from collections.abc import Callable, Container
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from model.checkpoints import STATE, STEP
from model.optimization import AdamWeightDecay, clip_factor

MAX_BAD_STEPS = 20  # more non-finite steps in a row end the run
EVALUATION_STEP = 2**32 - 1  # the "step" that seeds an evaluation's masking
FIRST_LOSS_SCALE, GROWTH_STEPS = 2.0**15, 2000


class Task(Protocol):
    """What is trained. A batch is any nested structure of tensors whose first axis is the example."""

    variables: dict[str, tf.Variable]  # by released name
    sum_shapes: dict[str, tuple[int, ...]]  # metric sums that `loss` gives; "loss" and "tokens" are among them

    def prepare(self, inputs: Any, step: tf.Tensor) -> Any:
        """Turns inputs into a batch with the randomness of this step."""

    def totals(self, batch: Any) -> Any:
        """Weights that are summed over the global batch before the loss is divided by them."""

    def loss(self, batch: Any, totals: Any, training: bool) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """This part's share of the global loss, and its metric sums."""

    def results(self, sums: dict[str, np.ndarray], batches: int) -> dict[str, float]:
        """Metrics from the sums over some batches."""


class TrainStep:
    """Runs steps of a task under a strategy.

    Args:
      task: what is trained.
      optimizer: of the variables that move, with slots made inside the strategy's scope.
      strategy: which devices.
      rate: learning rate of a step.
      accumulation: micro-batches a step.
      loss_scaling: for float16.
      use_xla: compiles the gradient computation.
      released_quirks: the global norm counts looked-up rows one by one, as released.
      frozen: names of the optimizer's variables that do not move; asked when a step is traced.
    """

    def __init__(
        self,
        task: Task,
        optimizer: AdamWeightDecay,
        strategy: tf.distribute.Strategy,
        rate: Callable[[tf.Tensor], tf.Tensor],
        accumulation: int = 1,
        loss_scaling: bool = False,
        use_xla: bool = False,
        released_quirks: bool = False,
        frozen: Callable[[], Container[str]] = tuple,
    ):
        self.task, self.optimizer, self.strategy, self.rate, self.frozen = task, optimizer, strategy, rate, frozen
        self.accumulation, self.loss_scaling, self.released_quirks = accumulation, loss_scaling, released_quirks
        self.shapes = {name: task.sum_shapes[name] for name in sorted(task.sum_shapes)}
        self.width = sum(int(np.prod(shape)) for shape in self.shapes.values())
        self.stop = tf.Variable(0.0, trainable=False)  # this worker's wish to leave
        with strategy.scope():
            self.step = _counter(0, tf.int64)
            self.skipped, self.bad_in_a_row = _counter(0, tf.int64), _counter(0, tf.int64)
            self.loss_scale = _counter(FIRST_LOSS_SCALE if loss_scaling else 1.0, tf.float32)
            self.good_in_a_row = _counter(0, tf.int64)
        self.use_xla = use_xla
        self.retrace()

    def retrace(self) -> None:
        """Compiles the task anew, after something in it has changed that its graph does not show."""
        self._gradients = tf.function(self._task_gradients, jit_compile=self.use_xla, autograph=False)
        self._loss = tf.function(self._task_loss, jit_compile=self.use_xla, autograph=False)
        self.run, self.evaluate = tf.function(self._run), tf.function(self._evaluate)

    @property
    def state(self) -> dict[str, tf.Variable]:
        """What a checkpoint keeps of the training itself."""
        return {
            STEP: self.step,
            STATE + "skipped_steps": self.skipped,
            STATE + "bad_in_a_row": self.bad_in_a_row,
            STATE + "loss_scale": self.loss_scale,
            STATE + "good_in_a_row": self.good_in_a_row,
        }

    def _moving(self) -> dict[str, tf.Variable]:
        """What this stage's steps move, by name; nothing else has a gradient."""
        frozen = self.frozen()
        return {name: variable for name, variable in self.optimizer.variables.items() if name not in frozen}

    # ---- training --------------------------------------------------------------------------------------------------

    def _run(self, iterator, count):
        """Runs up to `count` steps; fewer where a worker wants to stop or too many steps were bad.

        Returns:
          (steps done, whether it was asked to stop, [width + 2] float64: metric sums, number of good steps, sum of
          their gradient norms).
        """
        done, stop, sums = 0, 0.0, tf.zeros([self.width + 2], tf.float64)
        while done < count and stop <= 0 and self.bad_in_a_row <= MAX_BAD_STEPS:
            new, wish = self.strategy.run(self._replica_step, args=(next(iterator), tf.identity(self.stop)))
            sums += tf.cast(self._first(new), tf.float64)
            stop = self._first(wish)
            done += 1
        return done, stop > 0, sums

    def _first(self, value):
        return self.strategy.experimental_local_results(value)[0]

    def _replica_step(self, inputs, wish):
        context = tf.distribute.get_replica_context()
        batch = self.task.prepare(inputs, self.step)
        totals = context.all_reduce(tf.distribute.ReduceOp.SUM, self.task.totals(batch))
        gradients, rows, sums = self._accumulated(batch, totals)
        *gradients, rows, sums, stop = context.all_reduce(
            tf.distribute.ReduceOp.SUM,
            [*gradients, rows, sums, tf.identity(wish)],  # identity: a tensor of each replica's own
        )
        scale = tf.identity(self.loss_scale)
        norm, factor = clip_factor(gradients, scale, rows)
        good = tf.math.is_finite(norm) & tf.reduce_all(tf.math.is_finite(sums))
        moved = dict(zip(self._moving(), gradients))
        self.optimizer.apply(moved, tf.where(good, factor, 0.0), self.rate(self.step), good, self.step)
        self._count(good)
        kept = tf.concat([sums, [1.0, norm]], 0)
        return tf.where(good, kept, 0.0), stop

    def _accumulated(self, batch, totals):
        """Gradients, extra squared norm and metric sums of all micro-batches."""
        pieces = self.accumulation
        if pieces == 1:
            return self._gradients(batch, totals, tf.identity(self.loss_scale))
        batch = tf.nest.map_structure(lambda t: _split(t, pieces), batch)

        def body(i, so_far):
            piece = tf.nest.map_structure(lambda t: t[i], batch)
            new = self._gradients(piece, totals, tf.identity(self.loss_scale))
            return i + 1, tf.nest.map_structure(tf.add, so_far, new)

        start = ([tf.zeros(variable.shape) for variable in self._moving().values()], 0.0, tf.zeros([self.width]))
        # one after the other: pieces that overlap would keep their activations at the same time
        return tf.while_loop(lambda i, _: i < pieces, body, (0, start), parallel_iterations=1)[1]

    def _task_gradients(self, batch, totals, scale):
        variables = list(self._moving().values())
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            loss, sums = self.task.loss(batch, totals, training=True)
            loss *= scale
        gradients = tape.gradient(loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        rows = 0.0
        for gradient in gradients if self.released_quirks else ():
            if isinstance(gradient, tf.IndexedSlices):
                summed = tf.convert_to_tensor(gradient)
                rows += tf.reduce_sum(tf.square(gradient.values)) - tf.reduce_sum(tf.square(summed))
        return (
            [tf.convert_to_tensor(gradient) for gradient in gradients],
            tf.convert_to_tensor(rows),
            self._packed(sums),
        )

    def _count(self, good):
        """Moves the counters; a step whose float16 loss scale can still be lowered is not a bad one."""
        good_steps = tf.where(good, self.good_in_a_row + 1, 0)
        lowers = ~good & (self.loss_scale > 1.0)
        bad = tf.cast(~good & ~lowers, tf.int64)
        if self.loss_scaling:
            grows = good_steps >= GROWTH_STEPS
            self.loss_scale.assign(self.loss_scale * tf.where(lowers, 0.5, tf.where(grows, 2.0, 1.0)))
            good_steps = tf.where(grows, tf.zeros_like(good_steps), good_steps)
        self.good_in_a_row.assign(good_steps)
        self.skipped.assign_add(bad)
        self.bad_in_a_row.assign(tf.where(lowers, self.bad_in_a_row, (self.bad_in_a_row + 1) * bad))
        self.step.assign_add(1)

    # ---- evaluation ------------------------------------------------------------------------------------------------

    def _evaluate(self, iterator, count):
        """Metric sums [width] float64 over `count` batches, without dropout and with the masks of every evaluation."""
        sums = tf.zeros([self.width], tf.float64)
        for _ in tf.range(count):
            sums += tf.cast(
                self._first(self.strategy.run(self._replica_evaluation, args=(next(iterator),))), tf.float64
            )
        return sums

    def _replica_evaluation(self, inputs):
        context = tf.distribute.get_replica_context()
        batch = self.task.prepare(inputs, tf.constant(EVALUATION_STEP, tf.int64))
        totals = context.all_reduce(tf.distribute.ReduceOp.SUM, self.task.totals(batch))
        return context.all_reduce(tf.distribute.ReduceOp.SUM, self._loss(batch, totals))

    def _task_loss(self, batch, totals):
        return self._packed(self.task.loss(batch, totals, training=False)[1])

    # ---- metric sums as one vector ---------------------------------------------------------------------------------

    def _packed(self, sums):
        if {name: tuple(value.shape) for name, value in sums.items()} != self.shapes:
            raise ValueError(f"metric sums {sums} are not those that the task announced, {self.shapes}")
        return tf.concat([tf.reshape(sums[name], [-1]) for name in self.shapes], 0)

    def unpacked(self, vector: np.ndarray) -> dict[str, np.ndarray]:
        """Metric sums by name from the first `width` numbers of a vector."""
        sums, place = {}, 0
        for name, shape in self.shapes.items():
            size = int(np.prod(shape))
            sums[name] = vector[place : place + size].reshape(shape)
            place += size
        return sums


def _split(batch: tf.Tensor, pieces: int) -> tf.Tensor:
    """[B, ...] to [pieces, B / pieces, ...]; axes but the first may be of unknown size."""
    rows = None if batch.shape[0] is None else batch.shape[0] // pieces
    split = tf.reshape(batch, tf.concat([[pieces, tf.shape(batch)[0] // pieces], tf.shape(batch)[1:]], 0))
    return tf.ensure_shape(split, [pieces, rows, *batch.shape[1:]])


def _counter(value, dtype) -> tf.Variable:
    return tf.Variable(value, dtype=dtype, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
