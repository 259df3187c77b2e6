"""Turns a folder of raw text into pre-training examples (TFRecords). Recipes: docs/building_data.md."""

import argparse
import os

from pretrain.build_shards import (
    BuildSettings,
    add_build_arguments,
    build,
    check_folder,
    common_settings,
    truth,
    usable_sources,
)
from pretrain.text_files import find_files, is_binary, text_file
from util.errors import UserError, run_main


def parse_args() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--corpus-dir", required=True, help="text files, in sub-folders too; plain, .gz .xz .bz2 .zst")
    parser.add_argument("--vocab-file", required=True, help="WordPiece vocabulary, one piece a line")
    parser.add_argument("--output-dir", required=True, help="where the shards go")
    parser.add_argument("--blanks-separate-docs", type=truth, default=True, help="blank lines end documents")
    add_build_arguments(parser)
    return parser.parse_args()


def main() -> int:
    """Checks the folders, then builds."""
    args = parse_args()
    common = common_settings(args)
    check_folder(args.corpus_dir, "--corpus-dir")
    if os.path.abspath(args.output_dir).startswith(os.path.join(os.path.abspath(args.corpus_dir), "")):
        raise UserError(f"--output-dir {args.output_dir} lies within --corpus-dir: the shards would be read as text")
    paths = find_files(args.corpus_dir)
    sources = usable_sources(paths, lambda path: not is_binary(path), args.corpus_dir, "text files")
    settings = BuildSettings(
        command="build_pretraining_dataset.py",
        vocab_file=args.vocab_file,
        output_dir=args.output_dir,
        sources=sources,
        read_source=text_file,
        skipped_files=len(paths) - len(sources),
        blanks_separate_docs=args.blanks_separate_docs,
        corpus=args.corpus_dir,
        **common,
    )
    return build(settings)


if __name__ == "__main__":
    run_main(main)
