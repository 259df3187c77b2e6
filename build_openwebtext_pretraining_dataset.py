"""Turns the archives of OpenWebText into pre-training examples (TFRecords). Recipes: docs/building_data.md."""

import argparse
import os

from pretrain.build_shards import (
    BuildSettings,
    add_build_arguments,
    build,
    check_folder,
    common_settings,
    usable_sources,
)
from pretrain.text_files import archive_members, find_files, is_archive
from util.errors import run_main


def parse_args() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument(
        "--data-dir",
        required=True,
        help="holds vocab.txt and the folder openwebtext of tar archives; pretrain_tfrecords is written there",
    )
    add_build_arguments(parser)
    return parser.parse_args()


def main() -> int:
    """Checks the folders, then builds."""
    args = parse_args()
    common = common_settings(args)
    folder = os.path.join(args.data_dir, "openwebtext")
    check_folder(folder, "--data-dir")
    paths = find_files(folder, recursive=False)
    sources = usable_sources(paths, is_archive, folder, "tar archives of text files")
    settings = BuildSettings(
        command="build_openwebtext_pretraining_dataset.py",
        vocab_file=os.path.join(args.data_dir, "vocab.txt"),
        output_dir=os.path.join(args.data_dir, "pretrain_tfrecords"),
        sources=sources,
        read_source=archive_members,
        skipped_files=len(paths) - len(sources),
        blanks_separate_docs=False,
        corpus=folder,
        **common,
    )
    return build(settings)


if __name__ == "__main__":
    run_main(main)
