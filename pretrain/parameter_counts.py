"""The variables of any configuration without TensorFlow: names and shapes, and how many parameters each network has."""

from math import prod

from configure_pretraining import PretrainingConfig
from model.config import TransformerConfig
from model.disentangled import DIFFERENCE, TABLE
from model.shapes import Shapes, dense, embeddings, encoder, language_model_head
from pretrain.variants import TOKEN_OBJECTIVES

_GENERATORS = {"generator/": "generator", "generator_ltr/": "left tower", "generator_rtl/": "right tower"}
_HEADS = {
    "generator_predictions": "generator head",
    "cloze_predictions": "cloze head",
    "token_predictions": "token head",
    "copy_gate": "copy gate",
    "baseline_predictions": "baseline",
}


def variable_shapes(config: PretrainingConfig) -> Shapes:
    """Shapes of all trained variables by their released names, as `pretrain.pretraining_model` builds them."""
    main, width = config.discriminator_config(), config.main_embedding_size
    shapes = embeddings("electra", main, width) | encoder("electra", main, width) | _main_head(config)
    if config.weight_sharing == "gdes":
        shapes[DIFFERENCE] = shapes.pop(TABLE)
    network, own = config.generator_config(), config.generator_embedding_size
    towers = {"small": ["generator"], "two_tower": ["generator_ltr", "generator_rtl"]}.get(config.generator, [])
    for name in towers:
        shapes |= encoder(name, network, own)
        if config.weight_sharing != "embeddings":
            shapes |= embeddings(name, network, own)
    if config.generator == "two_tower":
        shapes |= language_model_head("cloze_predictions", 2 * network.hidden_size, own, config.vocab_size)
    elif config.generator in ("small", "tied", None):
        shapes |= language_model_head("generator_predictions", network.hidden_size, own, config.vocab_size)
    if config.objective == "adversarial":
        shapes |= dense("baseline_predictions", network.hidden_size, 1)
    return shapes


def parameter_counts(config: PretrainingConfig) -> dict[str, int]:
    """Parameters of each variable by its released name."""
    return {name: prod(shape) for name, shape in variable_shapes(config).items()}


def network_table(config: PretrainingConfig) -> tuple[list[str], list[list]]:
    """Header and rows of a table of the networks: sizes and parameters.

    The main network's embeddings are counted in a row of their own, since generators may use them too.
    """
    counts = parameter_counts(config)

    def parameters(*prefixes: str) -> str:
        return f"{sum(count for name, count in counts.items() if name.startswith(prefixes)):,}"

    def sizes(network: TransformerConfig) -> list:
        return [network.num_hidden_layers, network.hidden_size, network.num_attention_heads, network.intermediate_size]

    def present(names: dict[str, str]) -> dict[str, str]:
        return {prefix: name for prefix, name in names.items() if any(key.startswith(prefix) for key in counts)}

    width = config.main_embedding_size
    rows = [["embeddings", "", "", "", "", width, parameters("electra/embeddings/")]]
    name = "discriminator" if "discriminator_predictions/dense/bias" in counts else "masked LM"
    own = parameters("electra/encoder", "electra/embeddings_project", "discriminator_predictions")
    rows.append([name, *sizes(config.discriminator_config()), width, own])
    for prefix, name in present(_GENERATORS).items():
        rows.append([name, *sizes(config.generator_config()), config.generator_embedding_size, parameters(prefix)])
    rows += [[name, "", "", "", "", "", parameters(prefix)] for prefix, name in present(_HEADS).items()]
    rows.append(["all", "", "", "", "", "", f"{sum(counts.values()):,}"])
    return ["network", "layers", "hidden", "heads", "FFN", "embedding", "parameters"], rows


def _main_head(config: PretrainingConfig) -> Shapes:
    """What stands on the main network; a masked language model's head counts as the generator's."""
    hidden = config.discriminator_config().hidden_size
    if config.objective == "mlm":
        return {}
    if config.objective not in TOKEN_OBJECTIVES:
        head = "discriminator_predictions"
        return dense(f"{head}/dense", hidden, hidden) | dense(f"{head}/dense_1", hidden, 1)
    gate = dense("copy_gate", hidden, 1) if config.objective == "all_tokens_mlm" else {}
    return gate | language_model_head("token_predictions", hidden, config.main_embedding_size, config.vocab_size)
