"""Names and shapes of the variables of a Transformer and its heads, without TensorFlow."""

from model.config import TransformerConfig

Shapes = dict[str, tuple[int, ...]]


def embeddings(name: str, network: TransformerConfig, width: int) -> Shapes:
    """Tokens, segments and positions; `width` is E."""
    path = f"{name}/embeddings"
    return {
        f"{path}/word_embeddings": (network.vocab_size, width),
        f"{path}/token_type_embeddings": (network.type_vocab_size, width),
        f"{path}/position_embeddings": (network.max_position_embeddings, width),
    } | layer_norm(path, width)


def encoder(name: str, network: TransformerConfig, width: int) -> Shapes:
    """The blocks, and the projection of embeddings of another width than theirs."""
    hidden, inner = network.hidden_size, network.intermediate_size
    shapes = dense(f"{name}/embeddings_project", width, hidden) if width != hidden else {}
    for index in range(network.num_hidden_layers):
        path = f"{name}/encoder/layer_{index}"
        for part in ("self/query", "self/key", "self/value", "output/dense"):
            shapes |= dense(f"{path}/attention/{part}", hidden, hidden)
        shapes |= layer_norm(f"{path}/attention/output", hidden)
        shapes |= dense(f"{path}/intermediate/dense", hidden, inner) | dense(f"{path}/output/dense", inner, hidden)
        shapes |= layer_norm(f"{path}/output", hidden)
    return shapes


def language_model_head(name: str, hidden: int, width: int, vocab_size: int) -> Shapes:
    """Of a masked language model, without the token table, which it shares."""
    return dense(f"{name}/dense", hidden, width) | layer_norm(name, width) | {f"{name}/output_bias": (vocab_size,)}


def dense(path: str, size_in: int, size_out: int) -> Shapes:
    """A dense layer."""
    return {f"{path}/kernel": (size_in, size_out), f"{path}/bias": (size_out,)}


def layer_norm(path: str, size: int) -> Shapes:
    """A layer normalization."""
    return {f"{path}/LayerNorm/gamma": (size,), f"{path}/LayerNorm/beta": (size,)}
