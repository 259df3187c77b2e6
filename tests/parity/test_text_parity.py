"""Tokenizer and example building give what the released code gave: every piece, every record, in the same order."""

import functools
import itertools
import json
import random
import unicodedata
from contextlib import ExitStack
from pathlib import Path

import pytest
import tensorflow as tf

from model.tokenization import FullTokenizer, Vocabulary, load_vocab, tokenize_by_definition
from pretrain.build_shards import BUILDING, BuildSettings, write_examples
from pretrain.example_building import Counts, ExampleWriter
from pretrain.text_files import archive_members, find_files, text_file


def vocabularies(golden: Path) -> list[Vocabulary]:
    """The vocabularies of the golden folder, the smallest first: it belongs to model/, the largest to data/."""
    return sorted((load_vocab(str(path)) for path in golden.glob("vocab_*.txt")), key=len)


def read_jsonl(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def read_records(*paths: Path) -> list[dict]:
    """The records of TFRecord files one after the other, read and checked by TensorFlow."""
    records = []
    for record in tf.data.TFRecordDataset([str(path) for path in paths]).as_numpy_iterator():
        features = tf.train.Example.FromString(record).features.feature
        records.append({name: list(feature.int64_list.value) for name, feature in features.items()})
    return records


def in_writing_order(shards: list[list[dict]]) -> list[dict]:
    """Example j was written to shard j modulo their number."""
    return [shards[j % len(shards)][j // len(shards)] for j in range(sum(map(len, shards)))]


def build_job(job: int, settings: BuildSettings) -> tuple[Counts, dict[str, list[dict]]]:
    """Runs one job and reads its shards."""
    folder = Path(settings.output_dir) / BUILDING
    folder.mkdir(parents=True)
    counts, shards = write_examples(job, settings)
    records = iter(read_records(*(folder / name for name in shards)))
    return counts, {name: list(itertools.islice(records, number)) for name, number in shards.items()}


@pytest.mark.golden_cases("data/tokenizer*.jsonl")
def test_tokenizer(golden, case):
    vocabulary = vocabularies(golden)[-1]
    tokenizers = {}
    rows = read_jsonl(case)
    version = ""
    if any("tokens" not in row for row in rows):  # these depend on the interpreter's Unicode tables
        if not unicodedata.unidata_version.startswith("14."):
            pytest.skip(f"the answers are those of Unicode 14, this Python has {unicodedata.unidata_version}")
        version = "_py311_unicode14"
    for row in rows:
        settings = row["lower"], row["strip_accents"]
        tokenizer = tokenizers.setdefault(settings, FullTokenizer(vocabulary, *settings))
        assert tokenizer.tokenize(row["text"]) == row["tokens" + version], row
        assert tokenizer.encode(row["text"]) == row["ids" + version], row
        assert tokenize_by_definition(row["text"], vocabulary.ids, *settings) == row["tokens" + version], row
    assert rows


def config_of(case: Path) -> dict:
    """The settings of a folder of records: the manifest beside it calls it by its name or number."""
    manifest = json.loads((case.parent / "manifest.json").read_text())
    return next(config for config in manifest if case.name in (config["config"], f"config{config['config']}"))


def flags_of(config: dict) -> dict:
    """The flags that a case may name; the others are as usual."""
    flags = ("max_seq_length", "num_out_files", "seed", "blanks_separate_docs", "do_lower_case", "strip_accents")
    return {name: config[name] for name in flags if name in config}


@pytest.mark.golden_cases("data/pretrain_examples/config*")
def test_one_job_without_shuffle(golden, case, tmp_path):
    config = config_of(case)
    tokenizer = FullTokenizer(vocabularies(golden)[-1], config["do_lower_case"], config["strip_accents"])
    names = [
        f"pretrain_data.tfrecord-{i}-of-{config['num_out_files']}"
        for i in range(config["job_id"], config["num_out_files"], config["num_jobs"])
    ]
    rng = random.Random(config["seed"])
    counts = Counts()
    with ExitStack() as stack:
        shards = [stack.enter_context(open(tmp_path / name, "wb")) for name in names]
        blanks = config["blanks_separate_docs"]
        writer = ExampleWriter(tokenizer, shards, config["max_seq_length"], blanks, False, rng, counts)
        for name, _ in config["files_in_order"]:
            for pieces in text_file(str(case.parent / "corpus" / name), rng, counts):
                writer.add_file(pieces)
    assert counts.examples == config["n_written"]
    for name in names:
        assert read_records(tmp_path / name) == read_jsonl(case / f"{name}.jsonl"), name


@pytest.mark.golden_cases("data/pretrain_examples/full_job*")
def test_whole_job(golden, case, tmp_path):
    config = config_of(case)
    settings = BuildSettings(
        command="",
        vocab_file=vocabularies(golden)[-1].path,
        output_dir=str(tmp_path),
        sources=tuple(find_files(str(case.parent / "corpus"))),
        read_source=text_file,
        **flags_of(config),
    )
    _, shards = build_job(0, settings)
    assert (list(shards)[0], list(shards)[-1]) == (config["first_output_name"], config["last_output_name"])
    assert in_writing_order(list(shards.values())) == read_jsonl(case / "writing_order.jsonl")


@pytest.mark.golden_cases("data/openwebtext_examples")
def test_openwebtext(golden, case, tmp_path):
    manifest = json.loads((case / "manifest.json").read_text())
    listings = manifest["listdir_results_in_call_order"]
    orders = iter(names for folder, names in listings if folder != "openwebtext")

    def as_listed(names: list[str]) -> list[str]:
        """The order in which the file system listed the members of the next archive that was read."""
        listed = list(next(orders))
        by_name = {Path(name).name: name for name in names}
        assert sorted(by_name) == sorted(listed)
        return [by_name[name] for name in listed]

    settings = BuildSettings(
        command="",
        vocab_file=vocabularies(golden)[-1].path,
        output_dir=str(tmp_path),
        sources=tuple(find_files(str(case / "data_dir" / "openwebtext"), recursive=False)),
        read_source=functools.partial(archive_members, order=as_listed),
        max_seq_length=manifest["max_seq_length"],
        num_out_files=manifest["n_output_files"],
        blanks_separate_docs=False,
        seed=manifest["seed"],
    )
    counts, shards = build_job(0, settings)
    assert counts.examples == manifest["n"]
    assert in_writing_order(list(shards.values())) == read_jsonl(case / "writing_order.jsonl")


@pytest.mark.golden_cases("model/pretrain_tfrecords")
def test_released_tfrecords(golden, case, tmp_path):
    config = json.loads(case.with_suffix(".json").read_text())
    settings = BuildSettings(
        command="",
        vocab_file=vocabularies(golden)[0].path,
        output_dir=str(tmp_path),
        sources=tuple(find_files(str(case.parent / "corpus"))),
        read_source=text_file,
        **flags_of(config),
    )
    counts, shards = build_job(0, settings)
    assert counts.examples == config["n_examples"]
    for name, records in shards.items():
        assert records == read_records(case / name), name
