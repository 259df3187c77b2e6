"""Adam with decoupled weight decay and without bias correction, the schedule, and clipping, as released."""

import re
from collections.abc import Container

import tensorflow as tf

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-6
CLIP_NORM = 1.0
_NO_DECAY = re.compile("LayerNorm|layer_norm|bias")


def learning_rate(step: tf.Tensor, peak: float, steps: int, warmup: float, power: float = 1.0) -> tf.Tensor:
    """peak (1 - min(s, T) / T)^power min(1, s / warmup), float32.

    Args:
      step: scalar integer s, counted before the step: the first step trains at rate 0 where there is a warm-up.
      peak: the highest rate.
      steps: T.
      warmup: steps of warm-up, may be fractional; 0 for none.
      power: of the polynomial decay.
    """
    done = tf.cast(step, tf.float32)
    rate = peak * (1.0 - tf.minimum(done, float(steps)) / float(steps)) ** power
    return rate * tf.minimum(1.0, done / float(warmup)) if warmup > 0 else rate


def is_decayed(name: str) -> bool:
    """Whether weight decay applies to the variable of this released name."""
    return _NO_DECAY.search(name) is None


def clip_factor(
    gradients: list[tf.Tensor], scale: tf.Tensor | float = 1.0, extra: tf.Tensor | float = 0.0
) -> tuple[tf.Tensor, tf.Tensor]:
    """The global norm of the gradients, and the factor that brings it down to at most 1.0.

    Args:
      gradients: of a loss that was multiplied by `scale` (float16 loss scaling); the factor takes it out again.
      extra: is added to the squared norm of `gradients`.

    Returns:
      (norm without the scale, factor): float32 scalars.
    """
    squares = 2.0 * tf.add_n([tf.nn.l2_loss(gradient) for gradient in gradients]) + extra
    norm = tf.sqrt(squares) / scale
    return norm, CLIP_NORM / tf.maximum(norm, CLIP_NORM) / scale


class AdamWeightDecay:
    """update = m / (sqrt(v) + epsilon) + decay * theta; theta -= rate * update.

    Its slots are plain variables named `<name>/adam_m` and `<name>/adam_v`; make it inside the strategy's scope.
    Tables and their moments move densely at every step.

    Args:
      variables: the trained variables by name.
      weight_decay: applied where `is_decayed`.
      rate_factors: multipliers of the rate by name (layer-wise rates); 1 where absent.
    """

    def __init__(
        self, variables: dict[str, tf.Variable], weight_decay: float, rate_factors: dict[str, float] | None = None
    ):
        self.variables, self.weight_decay = variables, weight_decay
        self.rate_factors = rate_factors or {}
        self.slots = {
            f"{name}/{slot}": tf.Variable(tf.zeros(variable.shape), trainable=False, name=slot)
            for name, variable in variables.items()
            for slot in ("adam_m", "adam_v")
        }

    def apply(
        self,
        gradients: list[tf.Tensor],
        factor: tf.Tensor,
        rate: tf.Tensor,
        good: tf.Tensor,
        frozen: Container[str] = (),
    ) -> None:
        """Moves every variable; call it in replica context with gradients that are the same on all replicas.

        Args:
          gradients: in the order of `variables`, not yet multiplied by `factor`.
          factor: scalar, for clipping (and loss scaling).
          rate: scalar, the learning rate of this step.
          good: scalar bool; false leaves variables and slots as they are.
          frozen: names of variables that are left as they are.
        """
        moving = {name: gradient for name, gradient in zip(self.variables, gradients) if name not in frozen}
        context = tf.distribute.get_replica_context()
        context.merge_call(self._apply_across, args=(moving, factor, rate, good))

    def _apply_across(self, strategy, gradients, factor, rate, good):
        for name, gradient in gradients.items():
            variable = self.variables[name]
            m, v = self.slots[f"{name}/adam_m"], self.slots[f"{name}/adam_v"]
            decay = self.weight_decay if is_decayed(name) else 0.0
            strategy.extended.update(
                variable,
                _update,
                args=(m, v, gradient, factor, rate, good, self.rate_factors.get(name, 1.0), decay),
                group=True,
            )


def _update(variable, m, v, gradient, factor, rate, good, rate_factor, decay):
    """One variable on one device. A step that is not good has rate 0 and betas 1: it changes nothing."""
    rate = tf.where(good, rate * rate_factor, 0.0)
    gradient = tf.math.multiply_no_nan(gradient, factor)
    if decay:
        variable.assign(variable * (1.0 - rate * decay))
    tf.raw_ops.ResourceApplyAdam(  # with powers 0 it is Adam without bias correction, in one pass over memory
        var=variable.handle,
        m=m.handle,
        v=v.handle,
        beta1_power=0.0,
        beta2_power=0.0,
        lr=rate,
        beta1=tf.where(good, BETA_1, 1.0),
        beta2=tf.where(good, BETA_2, 1.0),
        epsilon=EPSILON,
        grad=gradient,
    )
