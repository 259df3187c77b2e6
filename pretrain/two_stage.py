"""Two-stage training (ELECTRA, section 3.2): the generator alone; then the discriminator starts from it."""

import tensorflow as tf

from model.modeling import named_variables
from pretrain import metrics
from pretrain.masking import Masked
from pretrain.objectives import Electra, LossAndSums, Totals


class TwoStage(Electra):
    """generator_steps steps of L_MLM; then L_Disc, from the generator's weights, with the generator frozen.

    Which stage it is follows from the step alone, so that a resumed run needs nothing saved.
    """

    second = False  # stage

    def begin(self, step: int) -> None:
        """Sets the stage; at the border the main network takes the generator's weights."""
        self.second = step >= self.config.generator_steps
        if step == self.config.generator_steps:
            variables = named_variables(self.layers)
            for name in (name for name in variables if name.startswith("electra/")):
                variables[name].assign(variables[name.replace("electra/", "generator/", 1)].read_value())

    def frozen(self) -> set[str]:
        """The generator moves in the first stage alone, everything else in the second."""
        return {name for name in named_variables(self.layers) if name.startswith("generator") == self.second}

    def loss(self, batch: Masked, totals: Totals, training: bool) -> LossAndSums:
        """This part's share of the stage's global loss, and its metric sums."""
        stage = self._discriminator_stage if self.second else self._generator_stage
        return stage(batch, totals, training)

    def _generator_stage(self, batch: Masked, totals: Totals, training: bool) -> LossAndSums:
        """L_MLM; the discriminator's sums are 0 before it begins."""
        loss, sums = self.generator_loss(self.generator.predict(batch, training), batch, totals)
        later = {**metrics.SAMPLED_SHAPES, **metrics.DISCRIMINATOR_SHAPES}
        return loss, self.summed(loss, batch, sums, {name: tf.zeros(shape) for name, shape in later.items()})

    def _discriminator_stage(self, batch: Masked, totals: Totals, training: bool) -> LossAndSums:
        """L_Disc; the frozen generator has no dropout."""
        predicted = self.generator.predict(batch, training=False)
        predicted = predicted._replace(logits=tf.stop_gradient(predicted.logits))
        sums = self.generator_loss(predicted, batch, totals)[1]
        corrupted = self.corrupt(batch, self.sample(predicted.logits, batch))
        loss, more = self.main_loss(batch, corrupted, predicted, totals, training)
        return loss, self.summed(loss, batch, sums, more, metrics.sampled_sums(corrupted.sampled, batch))
