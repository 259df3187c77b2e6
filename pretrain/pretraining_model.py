"""Generator and main network put together as a task for the training loop."""

import numpy as np
import tensorflow as tf

from configure_pretraining import PretrainingConfig
from model import randomness
from model.modeling import named_variables
from pretrain import metrics
from pretrain.adversarial import Adversarial
from pretrain.electric import Electric
from pretrain.masking import Inputs, Masked, Specials
from pretrain.objectives import Electra, ElectraMaskedOnly, MaskedLanguageModel, Totals
from pretrain.token_objectives import AllTokensMLM, ReplaceMLM
from pretrain.two_stage import TwoStage

OBJECTIVES = {
    "electra": Electra,
    "mlm": MaskedLanguageModel,
    "electric": Electric,
    "electra_masked_only": ElectraMaskedOnly,
    "replace_mlm": ReplaceMLM,
    "all_tokens_mlm": AllTokensMLM,
    "two_stage": TwoStage,
    "adversarial": Adversarial,
}


class PretrainingModel:
    """A `util.train_step.Task`; make it inside the strategy's scope.

    Args:
      config: the hparams.
      specials: ids of [CLS], [SEP] and [MASK], and which pieces go on with a word.
      token_counts: [V], for the unigram generator.
    """

    def __init__(self, config: PretrainingConfig, specials: Specials, token_counts: np.ndarray | None = None):
        self.config = config
        self.objective = make_objective(config, specials, token_counts)
        self.variables: dict[str, tf.Variable] = named_variables(self.objective.layers)
        self.sum_shapes = self.objective.sum_shapes

    def begin(self, step: int) -> None:
        """Is called before the step `step` where training or evaluation starts and where a stage begins."""
        self.objective.begin(step)

    def frozen(self) -> set[str]:
        """Names of the variables that do not move in this stage."""
        return self.objective.frozen()

    def prepare(self, inputs: Inputs, step: tf.Tensor) -> Masked:
        """Masks a batch with the randomness of this step and of each example's place in the global batch."""
        return self.objective.prepare(inputs, randomness.example_keys(self.config.seed, step, inputs.example))

    def totals(self, batch: Masked) -> Totals:
        """Weights of the losses, to be summed over the global batch."""
        return self.objective.totals(batch)

    def loss(self, batch: Masked, totals: Totals, training: bool) -> tuple[tf.Tensor, metrics.Sums]:
        """This part's share of the global loss, and its metric sums."""
        return self.objective.loss(batch, totals, training)

    def results(self, sums: dict[str, np.ndarray], batches: int) -> dict[str, float]:
        """Metrics by their released names."""
        return metrics.results(sums, batches)


def make_objective(
    config: PretrainingConfig, specials: Specials, token_counts: np.ndarray | None = None
) -> MaskedLanguageModel:
    """The objective that the hparams name, with its networks, built and initialised."""
    objective = OBJECTIVES[config.objective](config, specials, token_counts)
    for layer in objective.layers:
        layer.build()
    return objective
