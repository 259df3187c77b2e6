"""What a training will take, said before any device does work: sizes, FLOPs, data, time, cost and memory."""

from configure_pretraining import PretrainingConfig
from model.memory import size_text, what_lowers_text
from pretrain.flops import generator_flops, main_flops, training_flops
from pretrain.memory import checkpoint_size, estimated, logits_fault
from pretrain.parameter_counts import network_table
from pretrain.shards import known_examples
from pretrain.throughputs import Setup, setups, training
from util.distribution import batch_fault
from util.errors import UserError
from util.log import count_text, heading, say, table


def say_plan(config: PretrainingConfig, names: list[str], price: float | None) -> None:
    """Says all of it.

    Args:
      config: the hparams, checked.
      names: of devices, as `throughputs.setups` knows them; none for all.
      price: of one device for an hour, in any currency.

    Raises:
      UserError: an unknown device or an impossible price.
    """
    if price is not None and not 0 <= price < float("inf"):
        raise UserError(f"--price-per-hour must be a number from 0 on; got {price}")
    devices = setups(names)
    heading("networks")
    say(table(*network_table(config)))
    heading("training")
    say(table(["of all steps", ""], _training_rows(config)))
    heading("time")
    say(table(*_time_table(config, devices, price)))
    heading("memory of a device, by estimate")
    say(table(*_memory_table(config, devices)))
    for setup in devices:
        pieces = config.gradient_accumulation_steps
        if fault := batch_fault("train_batch_size", config.train_batch_size, setup.count, pieces):
            say(f"{setup.name}: {fault}")
        if fault := logits_fault(config, setup.count):
            say(f"{setup.name}: {fault}")
        if estimated(config, setup.count).total > setup.memory:
            say(f"{setup.name}: too little memory; {what_lowers_text(config, estimated, setup.count, setup.memory)}")


def _training_rows(config: PretrainingConfig) -> list[list[str]]:
    steps, examples = config.num_train_steps, config.num_train_steps * config.train_batch_size
    known = known_examples(config.pretrain_tfrecords)
    return [
        ["steps", f"{steps:,}"],
        ["examples", f"{examples:,}"],
        ["tokens, padding included", count_text(examples * config.max_seq_length)],
        ["passes over the data", f"{examples / known:.3g}" if known else "unknown: no manifest"],
        ["FLOPs", f"{training_flops(config, steps):.4g}"],
        ["FLOPs forward of a position: main network", f"{main_flops(config):.4g}"],
        ["FLOPs forward of a position: generator", f"{generator_flops(config):.4g}"],
        ["a checkpoint on disk", size_text(checkpoint_size(config))],
    ]


def _time_table(config: PretrainingConfig, devices: list[Setup], price: float | None) -> tuple[list[str], list[list]]:
    rows = []
    for setup in devices:
        seconds, source = training(config, setup)
        rate, hours = config.num_train_steps * config.train_batch_size / seconds, seconds / 3600
        cost = [] if price is None else [f"{hours * setup.count * price:,.2f}"]
        rows.append([setup.name, f"{rate:.4g}", f"{hours:.2f}", *cost, source])
    return ["devices", "sequences/s", "hours", *([] if price is None else ["cost"]), "throughput"], rows


def _memory_table(config: PretrainingConfig, devices: list[Setup]) -> tuple[list[str], list[list]]:
    rows = []
    for setup in devices:
        memory = estimated(config, setup.count)
        parts = (memory.weights, memory.slots, memory.gradients, memory.activations)
        rows.append([setup.name, *map(size_text, (setup.memory, memory.total, *parts))])
    return ["devices", "has", "needs", "weights", "slots", "gradients", "activations"], rows
