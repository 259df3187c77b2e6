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

    Its slots are plain variables named `<name>/adam_m` and `<name>/adam_v`. Tables and their moments move densely at
    every step.

    Args:
      variables: the trained variables by name.
      weight_decay: applied where `is_decayed`.
      rate_factors: multipliers of the rate by name (layer-wise rates); 1 where absent.
      slot_dtype: of the moments: float32 or bfloat16.
      strategy: on whose devices the slots lie, its scope not entered; None for the default one.
    """

    def __init__(
        self,
        variables: dict[str, tf.Variable],
        weight_decay: float,
        rate_factors: dict[str, float] | None = None,
        slot_dtype: tf.DType = tf.float32,
        strategy: tf.distribute.Strategy | None = None,
    ):
        self.variables, self.weight_decay = variables, weight_decay
        self.rate_factors = rate_factors or {}
        strategy = strategy or tf.distribute.get_strategy()
        self.slots = {
            f"{name}/{slot}": _zero_variable(variable.shape, slot_dtype, slot, strategy)
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
        salts = tf.constant([randomness.salt_of(name) for name in gradients], tf.uint32)
        keys = tf.unstack(randomness.fold(salts, step))
        beta_1, beta_2 = tf.where(good, BETA_1, 1.0), tf.where(good, BETA_2, 1.0)
        done = [factor]  # which follows from all gradients
        for (name, gradient), key in zip(gradients.items(), keys):
            variable, m, v = self.variables[name], self.slots[f"{name}/adam_m"], self.slots[f"{name}/adam_v"]
            own_rate = tf.where(good, rate * self.rate_factors.get(name, 1.0), 0.0)
            kept = 1.0 - own_rate * (self.weight_decay if is_decayed(name) else 0.0)
            arguments = variable.handle, m.handle, v.handle, gradient, factor, own_rate, kept, beta_1, beta_2
            if m.dtype == tf.bfloat16:
                # one variable after the other: all at once widened they would take more than they save
                with tf.control_dependencies(done):
                    done = [_update_narrow(*arguments, key)]
            else:
                _update(*arguments)


def _zero_variable(shape, dtype, name, strategy):
    """A strategy's variable that every device begins at 0 by itself: workers send no bfloat16 to one another."""

    def zeros():
        return tf.zeros(shape, dtype)

    def on_a_device(make, **options):  # the strategy calls it with the chief's value, which is not asked for
        return make(**{**options, "initial_value": zeros})

    with tf.variable_creator_scope(on_a_device), strategy.scope():
        return tf.Variable(zeros, trainable=False, name=name)


def _update(variable, m, v, gradient, factor, rate, kept, beta_1, beta_2):
    """One variable on one device, by handles: keeps a share of it, then moves it. Rate 0 and betas 1 change nothing."""
    gradient = tf.math.multiply_no_nan(gradient, factor)
    weights = tf.raw_ops.ReadVariableOp(resource=variable, dtype=tf.float32)
    tf.raw_ops.AssignVariableOp(resource=variable, value=weights * kept)
    tf.raw_ops.ResourceApplyAdam(  # with powers 0 it is Adam without bias correction, in one pass over memory
        var=variable,
        m=m,
        v=v,
        beta1_power=0.0,
        beta2_power=0.0,
        lr=rate,
        beta1=beta_1,
        beta2=beta_2,
        epsilon=EPSILON,
        grad=gradient,
    )


_HANDLE, _ANY, _SCALAR = tf.TensorSpec([], tf.resource), tf.TensorSpec(None), tf.TensorSpec([])


# One graph for all variables, called and not inlined: hundreds of copies would take gigabytes, and minutes to compile.
# No argument is a constant for the same reason: TensorFlow makes a copy for each of those.
@tf.function(
    autograph=False,
    input_signature=[_HANDLE] * 3 + [_ANY] + [_SCALAR] * 5 + [tf.TensorSpec([], tf.uint32)],
    experimental_attributes={"_noinline": True},
)
def _update_narrow(variable, m, v, gradient, factor, rate, kept, beta_1, beta_2, key):
    """The same with moments that are kept in bfloat16: the update is computed in float32, then they are rounded."""
    gradient = tf.math.multiply_no_nan(gradient, factor)
    read = tf.raw_ops.ReadVariableOp
    wide_m = beta_1 * tf.cast(read(resource=m, dtype=tf.bfloat16), tf.float32) + (1.0 - beta_1) * gradient
    wide_v = beta_2 * tf.cast(read(resource=v, dtype=tf.bfloat16), tf.float32) + (1.0 - beta_2) * tf.square(gradient)
    weights = read(resource=variable, dtype=tf.float32) * kept
    weights -= rate * wide_m / (tf.sqrt(wide_v) + EPSILON)
    tf.raw_ops.AssignVariableOp(resource=variable, value=weights)
    tf.raw_ops.AssignVariableOp(resource=m, value=tf.cast(wide_m, tf.bfloat16))
    tf.raw_ops.AssignVariableOp(resource=v, value=stochastic_bfloat16(wide_v, key))
    return tf.identity(key)  # which whoever waits for the update can wait for


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
