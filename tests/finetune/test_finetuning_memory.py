"""The estimate of fine-tuning's memory: what lowers it does, and frozen layers leave nothing."""

import pytest

from configure_finetuning import make_config
from finetune.memory import estimated, further_freezing
from model.memory import what_lowers

BLOCK = 7_087_872  # parameters of a block of base


def base(**hparams):
    return make_config("m", "d", {"task_names": ["rte"], "model_size": "base", **hparams})


@pytest.mark.parametrize("on_cpu", [False, True])
@pytest.mark.parametrize(
    "hparams",
    [
        {"recompute_layers": True},
        {"gradient_accumulation_steps": 4},
        {"bfloat16_slots": True},
        {"precision": "bfloat16"},
        {"train_batch_size": 16},
        {"max_seq_length": 64},
        {"freeze_layers": 4},
        {"model_size": "small"},
    ],
    ids=str,
)
def test_what_lowers_it(hparams, on_cpu):
    assert estimated(base(**hparams), 1, on_cpu).total < estimated(base(), 1, on_cpu).total


def test_frozen_layers_have_no_slots_and_keep_nothing():
    plain, ten, eleven, all_of_them = (estimated(base(freeze_layers=n), 1) for n in (None, 10, 11, 12))
    assert plain.slots == 2 * plain.weights
    assert ten.slots - eleven.slots == 8 * BLOCK == eleven.slots - all_of_them.slots
    inputs = 3 * 4 * 32 * 128
    assert ten.activations - inputs == pytest.approx(2 * (eleven.activations - inputs))
    assert all_of_them.activations == inputs and all_of_them.slots == all_of_them.gradients == 0


def test_freezing_is_among_what_lowers_it():
    config = base(freeze_layers=3)
    free = estimated(base(freeze_layers=7), 1).total
    assert what_lowers(config, estimated, 1, free, freeze_layers=further_freezing(config))[-1][0] == "freeze_layers=7"
    assert further_freezing(base()) == list(range(13))
