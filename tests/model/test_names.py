"""The table of names: one to one, and the same as the rule that names follow."""

import pytest

from model.names import names, released_names


@pytest.mark.parametrize("layout", ["electra", "bert"])
@pytest.mark.parametrize("layers", [1, 12])
def test_one_to_one(layout, layers):
    rows = names(layers, layout)
    assert len({row.released for row in rows}) == len({row.hugging_face for row in rows}) == len(rows)
    assert len(rows) == 7 + 16 * layers + (9 if layout == "electra" else 5)
    for row in rows:
        assert row.transposed == row.released.endswith("kernel")


def test_the_encoder_follows_a_rule():
    """Parts are joined by dots, layer_3 is layer.3, and what is learned is a weight or a bias."""
    leaves = {"kernel": "weight", "gamma": "weight", "beta": "bias", "bias": "bias"}
    for row in names(13):
        if row.released.startswith("electra/"):
            *path, leaf = row.released.replace("layer_", "layer/").split("/")
            expected = [*path, leaves[leaf]] if leaf in leaves else [*path, leaf, "weight"]
            assert row.hugging_face == ".".join(expected)


def test_an_encoder_saved_alone_has_no_prefix():
    rows = names(2, "bert", "")
    found = released_names({row.hugging_face: None for row in rows}, 2, "bert")
    assert list(found.values()) == rows and "electra/encoder/layer_1/output/dense/kernel" in found
    assert released_names({"embeddings.word_embeddings.weight": None}, 2, "bert").keys() == {
        "electra/embeddings/word_embeddings"
    }
