"""What a conversion starts from: one or two checkpoints, the wanted part of them, and the networks' sizes."""

from typing import Any

from model.checkpoints import check_finite, open_reader
from model.description import check_generator, fields_beside, networks
from model.disentangled import added_up
from model.huggingface import HuggingFaceReader
from model.parts import GENERATOR_HEAD, MAIN_HEAD, generator_of, has_generator, part_of, put_together
from model.readers import Tensors, has, is_weight
from util.errors import UserError
from util.log import say


def read_sources(paths: list[str], part: str | None, format: str, heads: int | None) -> tuple[Tensors, dict[str, Any]]:
    """The tensors to be written, and the sizes of their networks.

    Args:
      paths: of one checkpoint, or of a discriminator and its generator in any order.
      part: as `--part` says.
      format: of the result; a Hugging Face folder is cut into parts only when it is written.
      heads: num_attention_heads of the main network, where nothing tells.

    Raises:
      UserError: unreadable, not of one model, without the part, or with values that are not finite.
    """
    readers: list[Tensors] = [open_reader(path) for path in paths]
    if len(readers) == 2:
        tensors, main, generator = _two(*map(added_up, readers), part)
    else:
        keeps = format == "project" and part in (None, "both")  # a run goes on from the difference
        main = generator = readers[0] if keeps else added_up(readers[0])
        tensors = _one(main, part, format)
    beside = {"discriminator": fields_beside(main), "generator": fields_beside(generator, "generator")}
    found = networks(tensors, beside, heads)
    if found["discriminator"] is None and found["generator"] is None:
        raise UserError(f"the checkpoint {tensors.prefix} holds no encoder (electra/ or generator/)")
    if heads is None and "num_attention_heads" not in beside["discriminator"] and found["discriminator"]:
        count = found["discriminator"]["num_attention_heads"]
        say(f"note: nothing beside {main.prefix} tells the number of attention heads; {count} are assumed (hidden size "
            "/ 64), --num-attention-heads says otherwise")  # fmt: skip
    check_generator(found, generator.prefix)
    check_finite(tensors, [name for name in tensors.shapes if is_weight(name)])
    return tensors, found


def _one(reader: Tensors, part: str | None, format: str) -> Tensors:
    if isinstance(reader, HuggingFaceReader) and format != "huggingface":
        if part == "generator" or (part is None and reader.is_generator):
            say("taken over as the generator" + ("" if part else "; --part discriminator makes it the main network"))
            return generator_of(reader)
        part = "both"
    if format == "huggingface":
        if part in ("generator", "finetuned"):
            part_of(reader, part)  # whether it is there
        part = "both"
    return part_of(reader, part or "both") if has(reader, "electra") else generator_of(reader)


def _two(one: Tensors, other: Tensors, part: str | None) -> tuple[Tensors, Tensors, Tensors]:
    """The whole, its discriminator and its generator."""
    if part not in (None, "both"):
        raise UserError(f"--part {part} takes one --from")
    if has(other, MAIN_HEAD) and not has(one, MAIN_HEAD):
        one, other = other, one
    if not has_generator(other):
        raise UserError(f"neither of two --from can be the generator: {other.prefix} has no {GENERATOR_HEAD}")
    tensors, shared = put_together(one, other)
    say(f"discriminator {one.prefix}, generator {other.prefix}; they share {shared}")
    return tensors, one, other
