"""The networks in a checkpoint: picked out, renamed, and put together again. Works on names and shapes, lazily."""

import numpy as np

from model.readers import STATE, STEP, Tensors, View, has, is_weight, kept, moved, under
from util.errors import UserError

MAIN_HEAD, GENERATOR_HEAD = "discriminator_predictions", "generator_predictions"
TOWERS = ("generator_ltr", "generator_rtl")  # Electric's generator


def has_generator(reader: Tensors) -> bool:
    """Whether a checkpoint holds a masked language model (ELECTRA's generator, or BERT)."""
    return has(reader, GENERATOR_HEAD)


def generator_of(reader: Tensors, encoder: str = "generator", tables: str = "electra") -> View:
    """The generator of a checkpoint, or the masked language model that it is.

    Args:
      encoder: what its encoder shall be called.
      tables: under which network its embeddings shall be; "electra" is where tied ones are.
    """
    own = "generator" if has(reader, "generator") else "electra"
    from_ = own if has(reader, f"{own}/embeddings") else "electra"
    names = moved(reader, f"{from_}/embeddings", f"{tables}/embeddings")
    for part in ("embeddings_project", "encoder"):
        names |= moved(reader, f"{own}/{part}", f"{encoder}/{part}")
    return View(names | kept(reader, under(reader, GENERATOR_HEAD)))


def tower_of(reader: Tensors) -> View:
    """Electric's left tower, called electra/."""
    own, names = TOWERS[0], {}
    tables = own if has(reader, f"{own}/embeddings") else "electra"
    names |= moved(reader, f"{tables}/embeddings", "electra/embeddings")
    for part in ("embeddings_project", "encoder"):
        names |= moved(reader, f"{own}/{part}", f"electra/{part}")
    return View(names)


def part_of(reader: Tensors, part: str) -> View:
    """A part of a checkpoint under the names that it has there, with its slots and its step.

    Args:
      part: "both" (everything), "discriminator" (the main network), "generator" or "finetuned".

    Raises:
      UserError: the checkpoint does not hold it.
    """
    if part == "generator":
        if not has_generator(reader):
            towers = " (Electric's two towers are no masked language model)" if has(reader, *TOWERS) else ""
            raise UserError(f"the checkpoint {reader.prefix} holds no generator{towers}; choose another --part")
        whole = "electra/embeddings" if has(reader, "generator") else "electra"
        tables = "generator" if has(reader, "generator/embeddings") else whole
        names = under(reader, tables, "generator", GENERATOR_HEAD)
    elif part == "finetuned":
        if not has(reader, "task_specific"):
            raise UserError(f"the checkpoint {reader.prefix} holds no fine-tuned head; choose another --part")
        names = under(reader, "electra", "task_specific")
    else:
        if not has(reader, "electra"):
            raise UserError(f"the checkpoint {reader.prefix} holds no network electra/; it has " + _some(reader))
        names = iter(sorted(reader.shapes)) if part == "both" else under(reader, "electra", MAIN_HEAD)
    return View(kept(reader, [*names, *([STEP] if STEP in reader and part != "both" else [])]))


def _some(reader: Tensors) -> str:
    return ", ".join(sorted(reader.shapes)[:3]) + (", ..." if len(reader.shapes) > 3 else "")


def published(reader: Tensors, slots: bool) -> View:
    """A checkpoint as people publish it: weights and step, the optimizer's slots only if wanted."""
    names = (name for name in sorted(reader.shapes) if not name.startswith(STATE))
    return View(kept(reader, (name for name in names if slots or name == STEP or is_weight(name))))


def put_together(main: Tensors, generator: Tensors) -> tuple[View, str]:
    """One checkpoint of a discriminator and a generator from two sources, and in words what they share.

    What they share is seen from the values: all of the encoder, the embeddings, or nothing.

    Raises:
      UserError: they are not of one model.
    """
    main = part_of(main, "discriminator")
    alone = generator_of(generator, "electra")
    head = kept(generator, under(generator, GENERATOR_HEAD))
    everything = kept(main, main.shapes)
    encoder = [name for name in main.shapes if name.startswith("electra/") and is_weight(name)]
    if _equal(main, alone, encoder):
        return View(everything | head), "all weights (untied_generator false)"
    tied = _equal(main, alone, [name for name in encoder if name.startswith("electra/embeddings/")])
    if tied:
        view = generator_of(generator)
        return View(everything | kept(view, under(view, "generator", GENERATOR_HEAD))), "the embeddings"
    if has(alone, "electra/embeddings_project"):
        raise UserError(
            f"{main.prefix} and {generator.prefix} are not of one model: their embeddings differ, and the generator's "
            "are not as wide as its hidden size, as embeddings of its own must be (untied_generator_embeddings)"
        )
    view = generator_of(generator, tables="generator")
    return View(everything | kept(view, view.shapes)), "nothing (untied_generator_embeddings true)"


def _equal(one: Tensors, other: Tensors, names: list[str]) -> bool:
    same_shapes = all(name in other and one.shapes[name] == other.shapes[name] for name in names)
    return same_shapes and all(np.array_equal(one[name], other[name]) for name in names)
