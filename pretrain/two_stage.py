"""Two-stage training (ELECTRA, section 3.2): the generator alone; then the discriminator starts from it."""

import numpy as np
import tensorflow as tf

from configure_pretraining import PretrainingConfig
from model.modeling import named_variables
from pretrain import metrics
from pretrain.masking import Masked, Specials
from pretrain.objectives import Electra, LossAndSums, Totals


class TwoStage(Electra):
    """generator_steps steps of L_MLM; then L_Disc, from the generator's weights, with the generator frozen.

    Which stage it is follows from the step alone, so that a resumed run needs nothing saved.
    """

    def __init__(self, config: PretrainingConfig, specials: Specials, token_counts: np.ndarray | None = None):
        super().__init__(config, specials, token_counts)
        self.second = tf.Variable(False, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)

    def begin(self, step: int) -> None:
        """Sets the stage; at the border the main network takes the generator's weights."""
        self.second.assign(step >= self.config.generator_steps)
        if step == self.config.generator_steps:
            variables = named_variables(self.layers)
            for name, variable in variables.items():
                if name.startswith("electra/"):
                    variable.assign(variables[name.replace("electra/", "generator/", 1)].read_value())

    def trained(self) -> dict[str, tf.Tensor]:
        """The generator moves in the first stage, everything else in the second."""
        second = tf.identity(self.second)
        return {name: second != name.startswith("generator") for name in named_variables(self.layers)}

    def loss(self, batch: Masked, totals: Totals, training: bool) -> LossAndSums:
        """This part's share of the global loss, and its metric sums; those of the discriminator are 0 before it."""
        return tf.cond(
            self.second,
            lambda: self._discriminator_stage(batch, totals, training),
            lambda: self._generator_stage(batch, totals, training),
        )

    def _generator_stage(self, batch: Masked, totals: Totals, training: bool) -> LossAndSums:
        loss, sums = self.generator_loss(self.generator.predict(batch, training), batch, totals)
        later = {**metrics.SAMPLED_SHAPES, **metrics.DISCRIMINATOR_SHAPES}
        return loss, self.summed(loss, batch, sums, {name: tf.zeros(shape) for name, shape in later.items()})

    def _discriminator_stage(self, batch: Masked, totals: Totals, training: bool) -> LossAndSums:
        predicted = self.generator.predict(batch, training=False)
        predicted = predicted._replace(logits=tf.stop_gradient(predicted.logits))
        sums = self.generator_loss(predicted, batch, totals)[1]
        corrupted = self.corrupt(batch, self.sample(predicted.logits, batch))
        loss, more = self.main_loss(batch, corrupted, predicted, totals, training)
        return loss, self.summed(loss, batch, sums, more, metrics.sampled_sums(corrupted.sampled, batch))
