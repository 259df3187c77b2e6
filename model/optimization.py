"""Adam with decoupled weight decay and without bias correction, the schedule, and clipping, as released."""

import re

import tensorflow as tf

from model import randomness

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
      slot_dtype: of the moments: float32 or bfloat16.
    """

    def __init__(
        self,
        variables: dict[str, tf.Variable],
        weight_decay: float,
        rate_factors: dict[str, float] | None = None,
        slot_dtype: tf.DType = tf.float32,
    ):
        self.variables, self.weight_decay = variables, weight_decay
        self.rate_factors = rate_factors or {}
        self.slots = {
            f"{name}/{slot}": tf.Variable(tf.zeros(variable.shape, slot_dtype), trainable=False, name=slot)
            for name, variable in variables.items()
            for slot in ("adam_m", "adam_v")
        }

    def apply(
        self,
        gradients: dict[str, tf.Tensor],
        factor: tf.Tensor,
        rate: tf.Tensor,
        good: tf.Tensor,
        step: tf.Tensor,
    ) -> None:
        """Moves variables; call it in replica context with gradients that are the same on all replicas.

        Args:
          gradients: by the names of the variables that move, not yet multiplied by `factor`.
          factor: scalar, for clipping (and loss scaling).
          rate: scalar, the learning rate of this step.
          good: scalar bool; false leaves variables and slots as they are.
          step: scalar integer, for the rounding of bfloat16 slots.
        """
        context = tf.distribute.get_replica_context()
        context.merge_call(self._apply_across, args=(gradients, factor, rate, good, tf.identity(step)))

    def _apply_across(self, strategy, gradients, factor, rate, good, step):
        for name, gradient in gradients.items():
            variable = self.variables[name]
            m, v = self.slots[f"{name}/adam_m"], self.slots[f"{name}/adam_v"]
            decay = self.weight_decay if is_decayed(name) else 0.0
            strategy.extended.update(
                variable,
                _update,
                args=(m, v, gradient, factor, rate, good, step, name, self.rate_factors.get(name, 1.0), decay),
                group=True,
            )


def _update(variable, m, v, gradient, factor, rate, good, step, name, rate_factor, decay):
    """One variable on one device. A step that is not good has rate 0 and betas 1: it changes nothing."""
    rate = tf.where(good, rate * rate_factor, 0.0)
    gradient = tf.math.multiply_no_nan(gradient, factor)
    if decay:
        variable.assign(variable * (1.0 - rate * decay))
    beta_1, beta_2 = tf.where(good, BETA_1, 1.0), tf.where(good, BETA_2, 1.0)
    if m.dtype == tf.bfloat16:
        with tf.control_dependencies([gradient]):  # else the moments are widened, and kept, from a step's beginning
            _update_narrow(variable, m, v, gradient, rate, beta_1, beta_2, _noise_key(step, name))
        return
    tf.raw_ops.ResourceApplyAdam(  # with powers 0 it is Adam without bias correction, in one pass over memory
        var=variable.handle,
        m=m.handle,
        v=v.handle,
        beta1_power=0.0,
        beta2_power=0.0,
        lr=rate,
        beta1=beta_1,
        beta2=beta_2,
        epsilon=EPSILON,
        grad=gradient,
    )


def _update_narrow(variable, m, v, gradient, rate, beta_1, beta_2, key):
    """The same with moments that are kept in bfloat16: the update is computed in float32, then they are rounded."""
    wide_m = beta_1 * tf.cast(m, tf.float32) + (1.0 - beta_1) * gradient
    wide_v = beta_2 * tf.cast(v, tf.float32) + (1.0 - beta_2) * tf.square(gradient)
    variable.assign_sub(rate * wide_m / (tf.sqrt(wide_v) + EPSILON))
    m.assign(tf.cast(wide_m, tf.bfloat16))
    v.assign(stochastic_bfloat16(wide_v, key))


def stochastic_bfloat16(x: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    """Rounds up or down at random, so that the mean is x.

    Rounding to the nearest of 8 significant bits would never move a mean that changes by a thousandth a step.

    Args:
      x: float32, any shape, finite.
      key: scalar uint32.
    """
    noise = tf.reshape(randomness.random_bits(key[None], tf.size(x)), tf.shape(x))
    low = tf.constant(0xFFFF, tf.uint32)
    bits = tf.bitcast(x, tf.uint32) + tf.bitwise.bitwise_and(noise, low)
    return tf.cast(tf.bitcast(tf.bitwise.bitwise_and(bits, tf.bitwise.invert(low)), tf.float32), tf.bfloat16)


def _noise_key(step, name):
    return randomness.fold(tf.constant(randomness.salt_of(name), tf.uint32), step)
