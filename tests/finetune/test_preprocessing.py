"""The cache of features: what is in it comes back, what shapes it names it, and nothing half-made counts."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from finetune import preprocessing
from finetune.preprocessing import feature_set
from finetune.task_builder import make_tasks
from model.tokenization import FullTokenizer
from tests.finetune.task_files import VOCABULARY, config_of, task_of, write
from util.errors import UserError
from util.tf_example import read_example

TOPIC = {"kind": "classification", "text_a": "text", "label": "topic"}


def rte(data_dir: Path, rows: int) -> None:
    lines = [f"{i}\tsentence number {i} {'and more ' * (i % 7)}\tsecond {i}\tentailment\n" for i in range(rows)]
    write(data_dir, "rte/train.tsv", "index\ta\tb\tlabel\n" + "".join(lines))


def built(data_dir: Path, task: str = "rte", split: str = "train", lower: bool = True, **hparams):
    config = config_of(data_dir, task, **hparams)
    (made,) = make_tasks(config, FullTokenizer(VOCABULARY, lower))
    return feature_set(made, split, split == "train", config)


def test_features_come_back(tmp_path):
    rte(tmp_path, 50)
    task = task_of(tmp_path, "rte")
    rows = built(tmp_path)
    expected = [task.featurize(example, True)[0] for example in task.examples("train")]
    assert [rows[i] for i in range(len(rows))] == expected
    assert rows.lengths.tolist() == [len(features["input_ids"]) for features in expected]
    assert rows.lengths.dtype == "int32"
    again = built(tmp_path)
    assert again.path == rows.path and again[49] == expected[49]


@given(st.dictionaries(st.text(min_size=1, max_size=5), st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1)), st.lists(st.floats(width=32, allow_nan=False)))))  # fmt: skip
def test_serialized_features(features):
    floats = {name for name, value in features.items() if value and isinstance(value[0], float)}
    assert read_example(preprocessing.serialized(features, floats)) == features


texts = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\r\n\t"), max_size=40)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(texts, st.sampled_from("ab")), min_size=1, max_size=6))
def test_any_text_comes_back(tmp_path, rows):
    lines = [json.dumps({"text": text, "topic": label}) + "\n" for text, label in rows]
    write(tmp_path, "own/train.jsonl", "".join(lines))
    config = config_of(tmp_path, "own", TOPIC | {"labels": ["a", "b"]})
    (task,) = make_tasks(config, FullTokenizer(VOCABULARY))
    found = feature_set(task, "train", True, config)
    assert [found[i] for i in range(len(found))] == [task.featurize(e, True)[0] for e in task.examples("train")]


def test_everything_that_shapes_features_names_the_file(tmp_path):
    rte(tmp_path, 20)
    paths = {built(tmp_path).path}
    for change in ({"max_seq_length": 16}, {"debug": True, "use_tfrecords_if_existing": True}, {"lower": False}):
        paths.add(built(tmp_path, **change).path)
    rte(tmp_path, 21)
    paths.add(built(tmp_path).path)
    write(tmp_path, "mrpc/train.tsv", "\n" + "1\t2\t3\tone\ttwo\n")
    paths |= {built(tmp_path, "mrpc", double_unordered=double).path for double in (True, False)}
    assert len(paths) == 7
    assert built(tmp_path, seed=7, train_batch_size=3).path in paths


def test_number_of_processes_changes_no_byte(tmp_path, monkeypatch):
    monkeypatch.setattr(preprocessing, "LEAST_PER_PROCESS", 20)
    rte(tmp_path, 101)
    files = []
    for processes in (1, 3):
        rows = built(tmp_path, num_processes=processes, use_tfrecords_if_existing=False)
        files.append((Path(rows.path).read_bytes(), rows.described))
    assert files[0] == files[1]


def test_cache_is_used_unless_told(tmp_path):
    rte(tmp_path, 20)
    path = Path(built(tmp_path).path)
    before = path.stat().st_mtime_ns
    built(tmp_path)
    assert path.stat().st_mtime_ns == before
    built(tmp_path, use_tfrecords_if_existing=False)
    assert path.stat().st_mtime_ns > before


@pytest.mark.parametrize("damage", ["cut", "flipped", "no json", "bad json", "empty json"])
def test_damaged_files_are_made_anew(tmp_path, capsys, damage):
    rte(tmp_path, 20)
    path = Path(built(tmp_path).path)
    whole, beside = path.read_bytes(), path.with_suffix(".json")
    if damage == "cut":
        path.write_bytes(whole[:-5])
    elif damage == "flipped":
        path.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    elif damage == "no json":
        beside.unlink()
    else:
        beside.write_text("{" if damage == "bad json" else "[]")
    capsys.readouterr()
    assert len(built(tmp_path)) == 20 and path.read_bytes() == whole
    assert ("are damaged: they are made anew" in capsys.readouterr().out) == (damage != "no json")


def test_log_on_building_and_on_a_cache_hit(tmp_path, capsys):
    rte(tmp_path, 20)
    said = []
    for _ in range(2):
        built(tmp_path, max_seq_length=12)
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert "rte train: 20 examples, longest 12 tokens" in said[0]
    assert "labels: entailment 20, not_entailment 0" in said[0]
    assert said[0].count("  text:") == 3 and "  text:   sentence number 0  ||| second 0" in said[0]
    assert "  pieces: [CLS] " in said[0] and "  label:  entailment" in said[0]
    task = task_of(tmp_path, "rte", max_seq_length=12)
    cut = sum(task.is_cut(example, task.featurize(example, True)) for example in task.examples("train"))
    assert 0 < cut < 20 and f"{cut} examples cut to fit = {cut / 20:.2%}" in said[0]
    built(tmp_path, max_seq_length=12, log_examples=True)
    assert capsys.readouterr().out.count("  text:") == 20
    built(tmp_path, max_seq_length=12)
    assert capsys.readouterr().out.count("  text:") == 3


def test_shares_of_unknown_pieces_and_long_words(tmp_path, capsys):
    rows = [{"text": "☃ a ☃ a ☃ a a", "topic": "x"}, {"text": "a" * 201, "topic": "y"}]
    write(tmp_path, "own/train.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    config = config_of(tmp_path, "own", TOPIC)
    (task,) = make_tasks(config, FullTokenizer(VOCABULARY))
    feature_set(task, "train", True, config)
    assert "[UNK] 50.00% of the pieces, 1 words of over 200 characters are [UNK]" in capsys.readouterr().out


BUILD = """
import sys
from pathlib import Path
from finetune import preprocessing
from tests.finetune.test_preprocessing import built
if __name__ == "__main__":
    preprocessing.LEAST_PER_PROCESS = 100
    built(Path(sys.argv[1]), num_processes=int(sys.argv[2]))
"""


@pytest.mark.parametrize("processes", [1, 2])
def test_killed_build_leaves_nothing_that_counts(tmp_path, processes):
    rte(tmp_path, 40_000)
    script = tmp_path / "build.py"
    script.write_text(BUILD)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    child = subprocess.Popen([sys.executable, str(script), str(tmp_path), str(processes)], env=environment,
                             stdout=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
    folder = tmp_path / "models/m/finetuning_tfrecords/rte_tfrecords"
    deadline = time.monotonic() + 60
    while not any(part.stat().st_size > 50_000 for part in folder.glob("*.tmp-*")):
        assert child.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    left = list(folder.iterdir())
    assert left and all(".tmp-" in part.name for part in left)
    rte(tmp_path, 10)  # features of another name
    assert len(built(tmp_path)) == 10 and not list(folder.glob("*.tmp-*"))


def test_parts_of_others_are_left_alone(tmp_path):
    """Of a build that is running, or on another host; where nobody is left, they go."""
    rte(tmp_path, 10)
    folder = tmp_path / "models/m/finetuning_tfrecords/rte_tfrecords"
    folder.mkdir(parents=True)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    here = f"x.tfrecord.tmp-{socket.gethostname()}"
    names = {f"{here}-{child.pid}-0", f"x.tfrecord.tmp-elsewhere-{child.pid}-0", f"notes.tmp-{child.pid}"}
    for name in names:
        (folder / name).write_bytes(b"x")
    built(tmp_path)
    assert names <= set(os.listdir(folder))
    child.communicate()
    built(tmp_path, max_seq_length=16)
    assert names - set(os.listdir(folder)) == {f"{here}-{child.pid}-0"}


def test_what_reading_told_is_said_with_the_cache_and_once(tmp_path, capsys):
    rows = "".join(f"{i}\tx\ty\tentailment\n" for i in range(200))
    content = f"index\ta\tb\tlabel\n{rows}201\n".encode() + b"202\t\xe9\ty\tentailment\n"
    for split in ("train", "dev"):
        write(tmp_path, f"rte/{split}.tsv", content)
    for _ in range(2):
        for split in ("train", "dev"):
            built(tmp_path, split=split)
            said = capsys.readouterr().out
            assert said.count("1 of 202 rows is malformed and skipped, such as\n  line 202: 1 columns") == 1
            assert said.count(f"{split}.tsv: 1 bytes are not UTF-8 and dropped") == 1
    task = task_of(tmp_path, "rte")
    task.examples("dev"), task.scorer("dev"), task.metric
    assert capsys.readouterr().out == ""


def test_no_leftovers_of_an_error(tmp_path):
    write(tmp_path, "own/train.txt", "a O\n\nb B-Y\n")
    config = config_of(tmp_path, "own", {"kind": "tagging", "labels": ["X"]})
    (task,) = make_tasks(config, FullTokenizer(VOCABULARY))
    with pytest.raises(UserError, match="S-Y in the sentence 'b' is none of the labels"):
        feature_set(task, "train", True, config)
    assert not list(Path(config.preprocessed_data_dir).iterdir())
