"""The variables of any configuration without TensorFlow: names and shapes, and how many parameters each network has."""

from math import prod

from configure_pretraining import PretrainingConfig
from model.config import TransformerConfig
from model.disentangled import DIFFERENCE, TABLE
from pretrain.variants import TOKEN_OBJECTIVES

Shapes = dict[str, tuple[int, ...]]

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
    shapes = _embeddings("electra", main, width) | _encoder("electra", main, width) | _main_head(config)
    if config.weight_sharing == "gdes":
        shapes[DIFFERENCE] = shapes.pop(TABLE)
    network, own = config.generator_config(), config.generator_embedding_size
    towers = {"small": ["generator"], "two_tower": ["generator_ltr", "generator_rtl"]}.get(config.generator, [])
    for name in towers:
        shapes |= _encoder(name, network, own)
        if config.weight_sharing != "embeddings":
            shapes |= _embeddings(name, network, own)
    if config.generator == "two_tower":
        shapes |= _language_model_head("cloze_predictions", 2 * network.hidden_size, own, config.vocab_size)
    elif config.generator in ("small", "tied", None):
        shapes |= _language_model_head("generator_predictions", network.hidden_size, own, config.vocab_size)
    if config.objective == "adversarial":
        shapes |= _dense("baseline_predictions", network.hidden_size, 1)
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
        return _dense(f"{head}/dense", hidden, hidden) | _dense(f"{head}/dense_1", hidden, 1)
    gate = _dense("copy_gate", hidden, 1) if config.objective == "all_tokens_mlm" else {}
    return gate | _language_model_head("token_predictions", hidden, config.main_embedding_size, config.vocab_size)


def _embeddings(name: str, network: TransformerConfig, width: int) -> Shapes:
    path = f"{name}/embeddings"
    return {
        f"{path}/word_embeddings": (network.vocab_size, width),
        f"{path}/token_type_embeddings": (network.type_vocab_size, width),
        f"{path}/position_embeddings": (network.max_position_embeddings, width),
    } | _layer_norm(path, width)


def _encoder(name: str, network: TransformerConfig, width: int) -> Shapes:
    """The blocks, and the projection of embeddings of another width than theirs."""
    hidden, inner = network.hidden_size, network.intermediate_size
    shapes = _dense(f"{name}/embeddings_project", width, hidden) if width != hidden else {}
    for index in range(network.num_hidden_layers):
        path = f"{name}/encoder/layer_{index}"
        for part in ("self/query", "self/key", "self/value", "output/dense"):
            shapes |= _dense(f"{path}/attention/{part}", hidden, hidden)
        shapes |= _layer_norm(f"{path}/attention/output", hidden)
        shapes |= _dense(f"{path}/intermediate/dense", hidden, inner) | _dense(f"{path}/output/dense", inner, hidden)
        shapes |= _layer_norm(f"{path}/output", hidden)
    return shapes


def _language_model_head(name: str, hidden: int, width: int, vocab_size: int) -> Shapes:
    return _dense(f"{name}/dense", hidden, width) | _layer_norm(name, width) | {f"{name}/output_bias": (vocab_size,)}


def _dense(path: str, size_in: int, size_out: int) -> Shapes:
    return {f"{path}/kernel": (size_in, size_out), f"{path}/bias": (size_out,)}


def _layer_norm(path: str, size: int) -> Shapes:
    return {f"{path}/LayerNorm/gamma": (size,), f"{path}/LayerNorm/beta": (size,)}
