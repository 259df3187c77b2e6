"""FLOPs: the papers' six figures, every objective by its parts, and steps for a budget."""

import json

import pytest

import flops_computation
from configure_pretraining import make_config
from pretrain.flops import (
    block_flops,
    discriminator_head_flops,
    embedding_flops,
    softmax_flops,
    steps_for_flops,
    training_flops,
)
from tests.builders import fails, run

PAPERS = {
    "bert_small": 1.4187399146496e18,
    "bert_base": 6.428335104e19,
    "electra_small": 1.293743798272e18,
    "electra_base": 6.424541834277683e19,
    "electra_400k": 7.117606040895488e20,
    "gpt": 3.968752230785352e19,
}
TENTH_DIGIT = {"rel": 1e-10}


def config_of(**hparams):
    return make_config("m", "d", {"preset": "small", **hparams})


@pytest.mark.parametrize("name", PAPERS)
def test_the_papers_figures(name):
    assert flops_computation.PAPER_MODELS[name].flops() == pytest.approx(PAPERS[name], **TENTH_DIGIT)


@pytest.mark.parametrize(("preset", "name"), [("small", "electra_small"), ("base", "electra_base"),
                                              ("large", "electra_400k")])  # fmt: skip
def test_the_presets_cost_what_the_papers_models_cost(preset, name):
    config = config_of(preset=preset)
    assert training_flops(config, config.num_train_steps) == pytest.approx(PAPERS[name], **TENTH_DIGIT)


def parts(**hparams):
    """A position of: the main network's encoder, its head, the generator's encoder, its softmax."""
    config = config_of(**hparams)
    main, generator = config.discriminator_config(), config.generator_config()

    def encoder(network, width):
        return network.num_hidden_layers * block_flops(network, 128) + embedding_flops(network, width, 128)

    width = config.generator_embedding_size
    return (encoder(main, 128), discriminator_head_flops(main), encoder(generator, width),
            softmax_flops(generator, width), softmax_flops(main, 128))  # fmt: skip


def position(**hparams) -> float:
    """FLOPs of a forward pass at one position, from the training's."""
    return training_flops(config_of(**hparams), 10) / 10 / 2 / 128 / 128


def test_every_objective_by_its_parts():
    main, head, generator, softmax, main_softmax = parts()
    whole = main + head + generator + 0.15625 * softmax
    assert position() == position(objective="electra_masked_only") == pytest.approx(whole)
    assert position(objective="mlm") == pytest.approx(main + 0.15625 * main_softmax)
    replace = main + 0.15625 * main_softmax + generator + 0.15625 * softmax
    assert position(objective="replace_mlm") == pytest.approx(replace)
    all_tokens = main + main_softmax + generator + 0.15625 * softmax + 2 * 256 + 9
    assert position(objective="all_tokens_mlm") == pytest.approx(all_tokens)
    assert position(objective="adversarial") == pytest.approx(whole + 0.15625 * (2 * 64 + 9))
    assert position(generator="uniform") == position(generator="unigram") == pytest.approx(main + head)
    assert position(generator="tied") == pytest.approx(2 * main + head + 0.15625 * main_softmax)
    assert position(weight_sharing="gdes") == pytest.approx(whole)
    _, _, own, own_softmax, _ = parts(weight_sharing="none")
    assert position(weight_sharing="none") == pytest.approx(main + head + own + 0.15625 * own_softmax) != whole
    towers = main + head + 2 * generator + softmax + 2 * 128 * 64  # a dense layer from twice the states
    assert position(objective="electric") == position(generator="two_tower") == pytest.approx(towers)


def test_stages_are_counted_apart():
    """The frozen generator has a forward pass alone: half of what its training costs."""
    same = {"generator_hidden_size": 1, "generator_layers": 1}
    config = config_of(objective="two_stage", num_train_steps=100, generator_steps=30, **same)
    main, head, _, _, softmax = parts()
    alone, batch = main + 0.15625 * softmax, 128 * 128
    assert training_flops(config, 30) == pytest.approx(30 * batch * 2 * alone)
    assert training_flops(config, 40) == pytest.approx(batch * (60 * alone + 10 * (2 * (main + head) + alone)))
    assert training_flops(config, 30) == pytest.approx(training_flops(config_of(objective="mlm"), 30))


@pytest.mark.parametrize("hparams", [{}, {"objective": "mlm"}, {"objective": "two_stage", "generator_steps": 7,
                                     "num_train_steps": 20, "generator_hidden_size": 1}])  # fmt: skip
def test_steps_for_flops(hparams):
    """The most steps that a budget pays for, on both sides of a border too."""
    config = config_of(**hparams)
    for steps in (0, 1, 6, 7, 8, 1000):
        flops = training_flops(config, steps)
        assert steps_for_flops(config, flops) == steps
        assert steps_for_flops(config, flops * 1.0001 + 1) == steps
        assert steps == 0 or steps_for_flops(config, flops * 0.9999) == steps - 1


def test_batch_and_length_count():
    assert training_flops(config_of(train_batch_size=256), 3) == 2 * training_flops(config_of(), 3)
    assert training_flops(config_of(max_seq_length=256), 3) > 2 * training_flops(config_of(), 3)


def test_the_command():
    found = json.loads(run("flops_computation.py", "--json").stdout)
    assert found == {name: pytest.approx(value, **TENTH_DIGIT) for name, value in PAPERS.items()}
    text = run("flops_computation.py").stdout
    assert "electra_small" in text and "1.293743798272e+18" in text
    budget = ("flops_computation.py", "--json", "--hparams", "preset=small", "--flops", "1.293743798272e18")
    assert json.loads(run(*budget).stdout)["steps for --flops"] == 1_000_000
    fails(run("flops_computation.py", "--hparams", "objective=elektra"), '"objective" must be one of', "two_stage")
    fails(run("flops_computation.py", "--flops", "-1"), "--flops must be a number above 0")
