#!/usr/bin/env python3
"""Converts checkpoints between released TensorFlow ones, this project and Hugging Face, or says what one holds.

Recipes: docs/checkpoints.md.
"""

import argparse
import json
import os
from typing import Any

from conversion.companions import add_text_arguments, find_companions
from conversion.output import check_output, output_folder
from model.checkpoint_files import find
from util.errors import UserError, run_main
from util.log import say, table

PARTS = ("both", "discriminator", "generator", "finetuned")
KINDS = ("classification", "regression", "tagging", "qa")


def parse_args() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    path = "a folder, a checkpoint's prefix, a `checkpoint` file or a .safetensors file"
    parser.add_argument("--from", dest="sources", action="append", default=[], metavar="PATH",
                        help=f"{path}; twice for a discriminator and its generator")  # fmt: skip
    parser.add_argument("--to", metavar="FOLDER", help="where the result goes")
    parser.add_argument("--format", choices=("tf1", "project", "huggingface"), help="of the result")
    parser.add_argument("--part", choices=PARTS, help="what to take over; default: everything, or for huggingface the "
                        "fine-tuned model, else the discriminator, else the masked language model")  # fmt: skip
    parser.add_argument("--task", help="the task whose head is exported, where the checkpoint has several")
    parser.add_argument("--kind", choices=KINDS, help="of a task of your own, where no tasks.json beside "
                        "the weights tells")  # fmt: skip
    parser.add_argument("--slots", action="store_true", help="tf1: keep the optimizer's slots")
    parser.add_argument("--num-attention-heads", type=int, help="of the main network, where no file beside the "
                        "weights tells; default: hidden size / 64")  # fmt: skip
    add_text_arguments(parser)
    parser.add_argument("--overwrite", action="store_true", help="replace the checkpoint in a folder with content")
    parser.add_argument("--inspect", metavar="PATH", help="say what a checkpoint holds, and end")
    parser.add_argument("--json", action="store_true", help="with --inspect: as JSON")
    return parser.parse_args()


def main() -> int:
    """Checks the paths, then converts or describes."""
    args = parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if args.inspect:
        return inspect(args)
    if not (args.sources and args.to and args.format):
        raise UserError("--from, --to and --format are needed (or --inspect PATH); --help says what they mean")
    if len(args.sources) > 2:
        raise UserError("--from is given more than twice; one model has a discriminator and a generator")
    check_output(args.to, args.overwrite)
    return convert(args, [locate(path, "--from") for path in args.sources])


def locate(path: str, flag: str) -> str:
    """The checkpoint at a path; a `UserError` where there is none."""
    if (found := find(path)) is None:
        raise UserError(f"{flag} {path} is a folder without a checkpoint")
    return found


def convert(args: argparse.Namespace, paths: list[str]) -> int:
    """Reads, writes, and says what was done."""
    from conversion.sources import read_sources  # starts TensorFlow

    tensors, networks = read_sources(paths, args.part, args.format, args.num_attention_heads)
    rows = (networks["discriminator"] or networks["generator"])["vocab_size"]
    folders = [os.path.dirname(path) or "." for path in paths]
    companions = find_companions(folders, args.vocab_file, args.lower_case, args.strip_accents, rows)

    from conversion import exports

    source = exports.Source(tensors, networks, companions)
    with output_folder(args.to) as folder:
        if args.format == "tf1":
            exports.write_tf1(folder, source, args.slots)
        elif args.format == "project":
            exports.write_project(folder, source, args.part in (None, "both") and len(paths) == 1)
        else:
            exports.write_hugging_face(folder, source, args.part, args.task, args.kind)
    if tensors.left_out:
        say("left out, no part of ELECTRA: " + ", ".join(tensors.left_out))
    say(f"written to {args.to}")
    return 0


def inspect(args: argparse.Namespace) -> int:
    """Prints what a checkpoint holds."""
    path = locate(args.inspect, "--inspect")
    from model.checkpoints import open_reader  # starts TensorFlow
    from model.description import describe

    found = describe(open_reader(path), args.num_attention_heads)
    say(json.dumps(found, indent=2) if args.json else as_table(found))
    return 0


def as_table(found: dict[str, Any]) -> str:
    """A description for people."""
    fields = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size",
              "max_position_embeddings")  # fmt: skip
    rows = [[name, *(found[name][field] for field in fields)] for name in ("discriminator", "generator") if found[name]]
    columns = ["network", "layers", "hidden", "heads", "FFN", "vocabulary", "positions"]
    lines = [
        f"{found['path']}: {found['format']}, step {found['step'] if found['step'] is not None else 'not recorded'}"
    ]
    lines += ["", table(columns, rows), ""] if rows else []
    tasks = {task: f"{task} ({head['kind'] or 'kind unknown'})" for task, head in found["tasks"].items()}
    facts = {
        "embedding size": found["embedding_size"],
        "attention heads": found["attention_heads_from"],
        "parameters": f"{found['parameters']:,} in {found['variables']} variables",
        "generator": found["generator_kind"] or "none",
        "pre-training heads": ", ".join(found["heads"]) or "none",
        "fine-tuned heads": ", ".join(tasks.values()) or "none",
        "optimizer slots": ", ".join(f"{count} {name}" for name, count in found["slots"].items()) or "none",
        "training state": f"{len(found['training_state'])} variables" if found["training_state"] else "none",
        "not used": ", ".join(found["left_out"]) or "nothing",
        "NaN or infinite": ", ".join(found["not_finite"]) or "none",
        "as hparams": json.dumps(found["hparams"]),
    }
    return "\n".join(lines + [f"{name + ':':20}{value}" for name, value in facts.items()])


if __name__ == "__main__":
    run_main(main)
