"""The estimate of memory: what lowers it does, and no more examples take less."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as some

from configure_pretraining import make_config
from model.memory import what_lowers, what_lowers_text
from pretrain.memory import checkpoint_size, estimated, logits_fault
from tests.objectives import VARIANTS, config_of


def base(**hparams):
    return make_config("m", "d", {"preset": "base", "train_batch_size": 16, **hparams})


@pytest.mark.parametrize("on_cpu", [False, True])
@pytest.mark.parametrize(
    "hparams",
    [
        {"recompute_layers": True},
        {"gradient_accumulation_steps": 4},
        {"bfloat16_slots": True},
        {"precision": "bfloat16"},
        {"train_batch_size": 8},
        {"max_seq_length": 256},
        {"model_size": "small"},
    ],
    ids=str,
)
def test_what_lowers_it(hparams, on_cpu):
    assert estimated(base(**hparams), 1, on_cpu).total < estimated(base(), 1, on_cpu).total


def test_parts():
    """Of what is known to the byte: weights and slots; a checkpoint holds both."""
    parameters = 119_386_427
    memory, narrow = estimated(base(), 1), estimated(base(bfloat16_slots=True), 1)
    assert (memory.weights, memory.slots, narrow.slots) == (4 * parameters, 8 * parameters, 4 * parameters)
    assert (checkpoint_size(base()), checkpoint_size(base(bfloat16_slots=True))) == (12 * parameters, 8 * parameters)
    assert memory.total == sum(memory) and memory.graph == 0 < estimated(base(), 1, on_cpu=True).graph


@given(some.sampled_from(sorted(VARIANTS)), some.integers(1, 200), some.integers(1, 200), some.integers(1, 8))
def test_more_examples_take_no_less(variant, batch, more, devices):
    """Nor do fewer devices, as long as there are several."""
    few, many = (config_of(VARIANTS[variant], {"train_batch_size": n}) for n in (batch, batch + more))
    assert estimated(few, devices).total <= estimated(many, devices).total
    assert estimated(many, devices + 2).total <= estimated(many, 2).total


@pytest.mark.parametrize("free", [3e9, 6e9, 1e12])
def test_changes_are_the_mildest_that_suffice(free):
    config = base(train_batch_size=64)
    found = what_lowers(config, estimated, 2, free)
    names = [change.partition("=")[0] for change, _ in found]
    assert names == ["gradient_accumulation_steps", "recompute_layers", "train_batch_size", "precision"]
    for change, memory in found:
        name, value = change.split("=")
        value = value if name == "precision" else json.loads(value)
        assert memory == estimated(dataclasses.replace(config, **{name: value}), 2)
        assert f"{change} to " in what_lowers_text(config, estimated, 2, free)
    accumulation = json.loads(found[0][0].partition("=")[2])
    assert 32 % accumulation == 0
    if accumulation > 2:
        milder = dataclasses.replace(config, gradient_accumulation_steps=accumulation // 2)
        assert estimated(milder, 2).total > free


@pytest.mark.parametrize(
    "hparams, devices, fault",
    [
        ({"train_batch_size": 3704}, 1, "train_batch_size 3704 makes 2148016272 logits on a device"),
        ({"train_batch_size": 3703}, 1, None),
        ({"train_batch_size": 3704}, 2, None),
        ({"train_batch_size": 3704, "gradient_accumulation_steps": 2}, 1, None),
        ({"eval_batch_size": 3704}, 1, None),
        ({"eval_batch_size": 3704, "do_eval": True}, 1, "eval_batch_size 3704 makes 2148016272 logits"),
        ({"eval_batch_size": 3704, "eval_every_steps": 9}, 1, "eval_batch_size 3704 makes 2148016272 logits"),
        ({"train_batch_size": 3704, "do_eval": True}, 1, None),
        ({"objective": "all_tokens_mlm", "train_batch_size": 550}, 1, "(550 examples x 128 places x 30522 pieces)"),
    ],
    ids=str,
)
def test_logits_that_kernels_cannot_count(hparams, devices, fault):
    found = logits_fault(base(max_seq_length=128, **hparams), devices)
    assert fault in found if fault else found is None


def test_what_lowers_the_largest_batch_is_found_at_once():
    assert what_lowers(base(train_batch_size=2**31 - 1), estimated, 1, 1e9)
