"""Generator and main network put together as a task for the training loop."""

import numpy as np
import tensorflow as tf

from configure_pretraining import PretrainingConfig
from model import randomness
from model.config import TransformerConfig
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


_GENERATORS = {"generator/": "generator", "generator_ltr/": "left tower", "generator_rtl/": "right tower"}
_HEADS = {
    "generator_predictions": "generator head",
    "cloze_predictions": "cloze head",
    "token_predictions": "token head",
    "copy_gate": "copy gate",
    "baseline_predictions": "baseline",
}


def network_table(config: PretrainingConfig, variables: dict[str, tf.Variable]) -> tuple[list[str], list[list]]:
    """Header and rows of a table of the networks: sizes and parameters.

    The main network's embeddings are counted in a row of their own, since tied generators use them too.
    """
    counts = {name: int(np.prod(variable.shape)) for name, variable in variables.items()}

    def parameters(*prefixes: str) -> str:
        return f"{sum(count for name, count in counts.items() if name.startswith(prefixes)):,}"

    def sizes(network: TransformerConfig) -> list:
        return [network.num_hidden_layers, network.hidden_size, network.num_attention_heads, network.intermediate_size]

    def present(names: dict[str, str]) -> dict[str, str]:
        return {prefix: name for prefix, name in names.items() if any(key.startswith(prefix) for key in counts)}

    main = config.discriminator_config()
    rows = [["embeddings", "", "", "", "", config.main_embedding_size, parameters("electra/embeddings/")]]
    name = "discriminator" if "discriminator_predictions/dense/bias" in counts else "masked LM"
    own = parameters("electra/encoder", "electra/embeddings_project", "discriminator_predictions")
    rows.append([name, *sizes(main), config.main_embedding_size, own])
    for prefix, name in present(_GENERATORS).items():
        width = config.generator_embedding_size
        rows.append([name, *sizes(config.generator_config()), width, parameters(prefix)])
    rows += [[name, "", "", "", "", "", parameters(prefix)] for prefix, name in present(_HEADS).items()]
    rows.append(["all", "", "", "", "", "", f"{sum(counts.values()):,}"])
    return ["network", "layers", "hidden", "heads", "FFN", "embedding", "parameters"], rows
