"""What run_finetuning.py says of input it cannot use: one message, exit code 2, earlier models and results untouched.

And what it counts, shows and goes on with.
"""

import contextlib
import json
import os
import re
import resource
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from configure_finetuning import make_config
from finetune import starting
from finetune.preprocessing import feature_set
from finetune.task_builder import make_tasks
from finetune.trials import Trial
from model.tokenization import FullTokenizer, load_vocab
from tests import finetuning_runs
from tests.finetune.task_files import write
from tests.finetuning_runs import HPARAMS, finetune, finetune_here
from tests.training_runs import NETWORK, ROOT
from util.folder_lock import FolderLock

SIZES = {"vocab_size": 1000}
PAIRS = "index\tsentence1\tsentence2\tlabel\n"


def pairs(count: int, *odd: str, label: str = "entailment") -> str:
    """Rows of rte, the odd ones at the end."""
    rows = [f"{i}\tthe work {i}\tthe law {i}\t{label}\n" for i in range(count)]
    return PAIRS + "".join(rows) + "".join(line + "\n" for line in odd)


def questions(*contexts: str, answer: str = "law", **more) -> dict:
    """A question on each text, in SQuAD's format."""
    return {"data": [{"title": "t", "paragraphs": [
        {"context": text, "qas": [{"id": f"q{i}", "question": "what is it", **more,
                                   "answers": [{"text": answer, "answer_start": max(0, text.find(answer))}]}]}
        for i, text in enumerate(contexts)
    ]}]}  # fmt: skip


def files(folder: Path) -> dict[str, bytes]:
    """What lies in the model folders, the cache of features apart."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted((folder / "models").rglob("*"))
            if path.is_file() and "finetuning_tfrecords" not in path.parts}  # fmt: skip


@pytest.fixture
def data(tmp_path):
    """A data folder with rte, a fine-tuned model of it called m, and its results."""
    shutil.copy(ROOT / "tests/golden/vocab_1000.txt", tmp_path / "vocab.txt")
    for split in ("train", "dev"):
        write(tmp_path, f"rte/{split}.tsv", pairs(8))
    trial = trial_of(tmp_path)
    trial.prepare(load_vocab(str(tmp_path / "vocab.txt")), True)
    for suffix in (".index", ".data-00000-of-00001"):
        Path(trial.path(f"model.ckpt-2{suffix}")).write_bytes(b"x")
    trial.finish(2, 1.0, {"rte": {"dev": {"accuracy": 50.0, "loss": 0.7}}})
    results = tmp_path / "models" / "m" / "results"
    results.mkdir()
    (results / "rte_results.txt").write_text("rte: accuracy: 50.00 - loss: 0.70\n")
    return tmp_path


def trial_of(data: Path, **hparams) -> Trial:
    """The first trial of rte, as the command sees it."""
    config = make_config("m", str(data), {**HPARAMS, **SIZES, "task_names": ["rte"], **hparams})
    tasks = make_tasks(config, FullTokenizer(load_vocab(config.vocab_file)))
    return starting.open_trials(config, tasks, starting.collect(config, tasks, feature_set))[0]


@pytest.fixture
def no_start(monkeypatch):
    """A run ends where it would begin, which is where TensorFlow is first imported."""

    def started(*_):
        raise SystemExit("a run begins")

    monkeypatch.setitem(sys.modules, "finetune.finetuning_run", SimpleNamespace(FinetuningRun=started))


@pytest.fixture
def begins(no_start, data):
    """A function that runs the command up to where a run begins, and gives what it said until then."""

    def run(*hparams: dict | str, model: str = "new") -> str:
        result = finetune_here(data, model, SIZES, *hparams)
        assert result.returncode == "a run begins", result.stderr
        return result.stdout

    return run


@pytest.fixture
def refused(no_start, data):
    """A function that runs the command, which must be refused before a run begins and change nothing."""

    def run(*hparams: dict | str, model: str = "m") -> str:
        return failed(data, lambda: finetune_here(data, model, SIZES, {"task_names": ["rte"]}, *hparams))

    return run


def failed(data: Path, command) -> str:
    """The one message of a command that fails and leaves earlier models and results as they are."""
    before = files(data)
    result = command()
    assert result.returncode == 2, result.stdout + result.stderr
    assert "Traceback" not in result.stderr and files(data) == before
    _, *messages = re.split(r"^error: ", result.stderr, flags=re.MULTILINE)
    assert len(messages) == 1, result.stderr
    return messages[0]


# ---------------------------------------------------------------------------------------------------------------------
# Hparams

OWN = {"name": "own", "kind": "classification", "text_a": "text", "label": "topic"}
HPARAM_FAULTS = {
    "unknown": ({"learning_rat": 1}, 'unknown hparam "learning_rat"', '"learning_rate"'),
    "wrong type": ({"train_batch_size": "8"}, '"train_batch_size" must be a whole number', '"8"'),
    "a task as a number": ({"task_names": 3}, '"task_names" must be a list; got 3'),
    "a list within the list": ({"task_names": [["rte"]]}, "unknown task ['rte']", "squadv1"),
    "unknown task": ({"task_names": ["mrcp"]}, "unknown task 'mrcp'; did you mean \"mrpc\"?", "cola, sst"),
    "a task twice": ({"task_names": ["rte", "rte"]}, 'task_names names "rte" twice'),
    "a head twice": ({"task_names": ["mnli", "ax"]}, "ax uses the head of mnli; name it alone"),
    "an object among the tasks": ({"task_names": [{"a": 1}]}, "unknown task {'a': 1}"),
    "no task": ({"task_names": []}, "task_names is empty; name one or more of: cola"),
    "a task of one's own that is no object": ({"custom_tasks": ["own"]}, "entry 0 must be an object"),
    "a name that is no text": ({"custom_tasks": [{**OWN, "name": ["own"]}]}, '"name" of entry 0', "['own']"),
    "unknown kind": ({"custom_tasks": [{**OWN, "kind": "class"}]}, "unknown kind 'class'", "classification"),
    "nothing to do": ({"do_train": False, "do_eval": False}, "there is nothing to do"),
    "micro-batches": ({"gradient_accumulation_steps": 3}, "train_batch_size 8 is not divisible", "3"),
    "no examples a batch": ({"eval_batch_size": 0}, '"eval_batch_size" must be at least 1; got 0'),
    "position table": (
        {"max_seq_length": 64, "model_hparam_overrides": {**NETWORK, "max_position_embeddings": 48}},
        "max_seq_length 64 is over the position table of 48",
        "max_position_embeddings",
    ),
    "vocabulary": ({"vocab_size": 900}, "has 1000 pieces, more than vocab_size 900; set vocab_size to 1000"),
    "init_checkpoint": ({"init_checkpoint": "/nowhere/model.ckpt-7"}, "no checkpoint /nowhere/model.ckpt-7"),
    "pattern": ({"qa_preds_file": "{x}.json"}, '"qa_preds_file" must be a path with up to 1 "{}"', "{x}.json"),
    "metric": ({"keep_best": "acuracy"}, 'keep_best "acuracy" is no metric of rte; did you mean "accuracy"?', "loss"),
    "metric of another task": ({"keep_best": "mrpc/f1"}, 'keep_best "mrpc/f1": mrpc is none of the tasks: rte'),
    "split": ({"do_predict": True, "predict_split": "tset"}, 'rte has no split "tset"; it has: train, dev, test'),
    "no file to predict": ({"do_predict": True}, "rte/test.tsv is missing; expected there: train.tsv, dev.tsv"),
    "other hparams": ({"learning_rate": 0.1}, "holds a finished trial with other hparams", "overwrite true"),
}  # fmt: skip


@pytest.mark.parametrize("fault", HPARAM_FAULTS)
def test_hparams(refused, fault):
    hparams, *parts = HPARAM_FAULTS[fault]
    message = refused(hparams)
    assert all(part in message for part in parts), message


@pytest.fixture
def refused_plainly(data, no_start, monkeypatch):
    """A function that runs the command with a task's name alone, from a pre-trained model, which must be refused."""

    def run(model: str) -> str:
        command = ["run_finetuning.py", "--data-dir", str(data), "--model-name", model, "--hparams", "task_names=rte"]
        monkeypatch.setattr(finetuning_runs, "finetuning_command", lambda *_: command)
        return failed(data, lambda: finetune_here(data, model))

    return run


def test_a_missing_model(data, refused_plainly):
    """init_checkpoint left as it is: the pre-trained model's folder."""
    message = refused_plainly("n")
    assert f"there is no pre-trained model {data}/models/n; below {data}/models: m" in message


def test_tasks_as_a_text(begins):
    """As one writes it in a shell."""
    assert "task_names ['rte']\n" in begins("task_names=rte")


def test_a_vocabulary_smaller_than_the_table_is_said(begins):
    assert "has 1000 pieces, vocab_size is 1010" in begins({"task_names": ["rte"], "vocab_size": 1010})


# ---------------------------------------------------------------------------------------------------------------------
# Files of tasks

SIMILAR = {"name": "similar", "kind": "regression", "text_a": "a", "text_b": "b", "label": "score", "range": [0, 5]}
SCORES = "a\tb\tscore\none\ttwo\t2.5\n"
FILE_FAULTS = {
    "no folder": ("mrpc", {}, "finetuning_data/mrpc is missing; expected there: train.tsv, dev.tsv, test.tsv"),
    "no file": ("rte", {"dev.tsv": None}, "rte/dev.tsv is missing; expected there: train.tsv, dev.tsv, test.tsv"),
    "no file of questions": ("squad", {"train.json": questions("the law")}, "squad/dev.json", "in", "train.json"),
    "no sentences' file": ("chunk", {}, "finetuning_data/chunk is missing; expected there: train.txt, dev.txt"),
    "an empty file": ("rte", {"train.tsv": ""}, "rte/train.tsv holds no rows; expected one for each example"),
    "a header alone": ("rte", {"dev.tsv": PAIRS}, "rte/dev.tsv holds no rows below the header"),
    "no question": ("squad", {"train.json": questions()}, "not one question was found in 0 paragraphs"),
    "no sentence": ("chunk", {"train.txt": "\n\n"}, "chunk/train.txt holds no sentences; expected a word and its tag"),
    "5% malformed": (
        "rte", {"train.tsv": pairs(95, *["x\ty"] * 5)},
        "rte/train.tsv: 5 of 100 rows are malformed, more than 1%",
        "line 97: 2 columns, column 2 is missing: ['x', 'y']",
    ),
    "unknown label": (
        "rte", {"train.tsv": pairs(3, "3\ta\tb\tmaybe")},
        "rte/train.tsv, line 5: the label 'maybe' is none of the task's; expected one of: entailment, not_entailment",
    ),
    "no labels to evaluate on": (
        "rte", {"dev.tsv": "index\tsentence1\tsentence2\n0\ta\tb\n"}, "dev.tsv: 1 of 1 rows is malformed", "column 3",
    ),
    "no answers to evaluate on": (
        "squadv1", {"train.json": questions("the law"), "dev.json": {"data": [{"title": "t", "paragraphs": [
            {"context": "the law", "qas": [{"id": "q0", "question": "what"}]}]}]}},
        "squadv1/dev.json: 1 of 1 questions, the first 'q0', have no \"answers\"", "do_eval false",
    ),
    "a score that is NaN": (
        "similar", {"train.tsv": SCORES + "c\td\tNaN\n"},
        "similar/train.tsv, line 3: the label 'NaN' is outside the range; expected a number from 0 to 5",
    ),
    "a score outside": (
        "similar", {"train.tsv": SCORES, "dev.tsv": SCORES + "c\td\t5.01\n"},
        "similar/dev.tsv, line 3: the label '5.01' is outside the range; expected a number from 0 to 5",
    ),
    "ids there twice": (
        "squad", {"train.json": questions("the law"), "dev.json": {"data": questions("a law")["data"] * 2}},
        "squad/dev.json: article 2, paragraph 1, question 1 has the \"id\" 'q0' of article 1, paragraph 1, question 1",
        "predictions are keyed by it",
    ),
    "not one answer is there": (
        "squad", {"train.json": questions("a", "b")},
        "squad/train.json: the answers to 2 of 2 questions are not in the text where they should be",
        "mend the answers' texts or places", "article 1, paragraph 1, question 1: 'law'",
    ),
    "a label that is empty": (
        "own", {"train.tsv": "text\ttopic\na\tx\nb\t\n"}, "own/train.tsv, line 3: the label '' is empty",
    ),
    "two files for a split": (
        "own", {"train.tsv": "", "train.csv": ""}, "own holds train.tsv and train.csv", 'the task\'s "train"',
    ),
    "a JSON array": ("own", {"train.jsonl": '[{"text": "a"}]'}, "own/train.jsonl is a JSON array; expected JSONL"),
    "tags of BIOES": (
        "chunk", {"train.txt": "law\tS-NP\n"}, "chunk/train.txt, line 1: the tag 'S-NP' is none of BIO", "bioes",
    ),
    "tags with spaces": (
        "chunk", {"train.txt": "law\tB-NP\nwork\tB-NP x\n"},
        "chunk/train.txt, line 2: the tag 'B-NP x' is none of BIO", "without white space",
    ),
    "no tags to evaluate on": (
        "chunk", {"train.txt": "law O\n", "dev.txt": "law\nwork\n"},
        "chunk/dev.txt, line 1 has one column; expected a word and its tag",
    ),
    "not JSON": ("squad", {"train.json": '{"data": [}'}, "squad/train.json is not valid JSON", "char 10"),
}  # fmt: skip


def write_task(data: Path, task: str, contents: dict) -> None:
    for name, content in contents.items():
        if content is None:
            (data / "finetuning_data" / task / name).unlink()
        else:
            write(data, f"{task}/{name}", json.dumps(content) if isinstance(content, dict) else content)


@pytest.mark.parametrize("fault", FILE_FAULTS)
def test_files(data, refused, fault):
    task, contents, *parts = FILE_FAULTS[fault]
    write_task(data, task, contents)
    message = refused({"task_names": [task], "custom_tasks": [SIMILAR, OWN]})
    assert all(part in message for part in parts), message


@pytest.mark.parametrize("hparams", [{"keep_best": "loss"}, {"early_stopping_patience": 2}], ids=str)
def test_keeping_the_best_needs_a_labelled_split(data, refused, hparams):
    (data / "finetuning_data/rte/dev.tsv").unlink()
    assert "rte/dev.tsv is missing" in refused({"do_eval": False, **hparams})
    task, contents, *parts = FILE_FAULTS["no answers to evaluate on"]
    write_task(data, task, contents)
    message = refused({"do_eval": False, **hparams, "task_names": [task]}, {"keep_best": hparams.get("keep_best")})
    assert all(part in message for part in parts), message


def test_predictions_are_keyed_by_ids(data, refused):
    unnamed = questions("the law", "a law")
    del unnamed["data"][0]["paragraphs"][1]["qas"][0]["id"]
    write_task(data, "squad", {"train.json": questions("the law"), "test.json": unnamed})
    message = refused({"task_names": ["squad"], "do_eval": False, "do_predict": True})
    assert 'squad/test.json, article 1, paragraph 2, question 1 has no "id"; predictions are keyed by it' in message


def test_what_is_counted_and_goes_on(data, begins):
    rows = pairs(198, "x\ty").replace("\n", "\r\n").encode("utf-8-sig")
    write(data, "rte/train.tsv", rows + "199\tcaf\xe9\tna\xefve\tentailment\r\n".encode("latin-1"))
    repeated = questions(*["the law"] * 199, "no answer here")
    repeated["data"][0]["paragraphs"][1]["qas"][0]["id"] = "q0"
    write_task(data, "squad", {"train.json": repeated, "dev.json": questions("a law")})
    output = begins({"task_names": ["rte", "squad"]})
    assert "train.tsv: 2 bytes are not UTF-8 and dropped; convert the file if this is not its encoding" in output
    assert "train.tsv: 1 of 200 rows is malformed and skipped, such as\n  line 200: 2 columns" in output
    assert "rte train: 199 examples" in output
    assert "train.json: the answers to 1 of 200 questions are not in the text where they should be" in output
    assert "  article 1, paragraph 200, question 1: 'law' is looked for in" in output
    assert "1 ids of questions are there twice:\n  article 1, paragraph 2, question 1: 'q0'" in output
    assert "squad train: 199 examples" in output


def test_what_is_told_once(data, begins):
    """With features that are made and with those of the cache, where labels are collected, words read before."""
    write(data, "own/train.tsv", b"text\ttopic\na\tx\n\xffb\ty\n")
    write(data, "own/dev.tsv", b"text\ttopic\na\tx\n\xffb\ty\n")
    write(data, "words/train.txt", b"law\tB-X\nw\xffork\tO\n")
    write(data, "words/dev.txt", b"law\tB-X\n")
    names = ["own", "words"]
    for _ in range(2):
        output = begins({"task_names": names, "custom_tasks": [OWN, {"name": "words", "kind": "tagging"}]})
        for name in ("own/train.tsv", "own/dev.tsv", "words/train.txt"):
            assert output.count(f"{name}: 1 bytes are not UTF-8") == 1, output


def test_braces_in_paths(data, begins):
    """Names of folders, not places for the task's name."""
    assert "braces {x} {}" in begins({"task_names": ["rte"]}, model="braces {x} {}")


def test_test_outputs_without_a_file_are_said(begins):
    output = begins({"task_names": ["rte"], "write_test_outputs": True})
    assert "note: rte has no file for test, so there are no test outputs" in output


@pytest.mark.parametrize("ending", [".tfrecord", ".json"])
def test_a_damaged_cache_is_made_anew(data, begins, ending):
    begins({"task_names": ["rte"]})
    (path,) = (data / "models/new/finetuning_tfrecords/rte_tfrecords").glob(f"rte_train*{ending}")
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"examples": 8', b'"examples": 9').replace(b"\x0a", b"\x0b", 1))
    assert path.read_bytes() != whole
    output = begins({"task_names": ["rte"]})
    assert "are damaged: they are made anew" in output and path.read_bytes() == whole
    assert "are damaged" not in begins({"task_names": ["rte"]})


# ---------------------------------------------------------------------------------------------------------------------
# Folders

DAMAGED = ["", "[]", "\udcff", '{"results": {}}',
           '{"trial": 1, "seed": 42, "data": 1, "tasks": 1, "results": {"rte": 5}}']  # fmt: skip


@pytest.mark.parametrize("content", DAMAGED)
def test_damaged_notes_of_a_trial(data, refused, content):
    folder = data / "models/m/finetuning_models/rte_model_1"
    for name in ("trial.json", "hparams.json", "tasks.json", "transformer_configs.json"):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(content.encode("utf-8", "surrogateescape"))
        if name == "hparams.json" and content.startswith("{"):
            continue  # nothing changed that it knows of
        message = refused()
        assert name in message or "another network or other labels" in message, message
        assert "overwrite true to train anew" in message
        (folder / name).write_bytes(whole)


@pytest.mark.parametrize("content", DAMAGED)
def test_damaged_notes_of_a_model(data, refused, content):
    """What a fine-tuned model that is evaluated alone says of itself."""
    folder = data / "models/m/finetuning_models/rte_model_1"
    alone = {"do_train": False, "init_checkpoint": str(folder)}
    (folder / "tasks.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    assert f"{folder}/tasks.json" in refused(alone)


@pytest.mark.parametrize("name, content, said", [
    ("transformer_configs.json", '{"discriminator": 5, "embedding_size": 16}', "does not tell the sizes"),
    ("transformer_configs.json", '{"discriminator": {"hidden_size": 9}, "embedding_size": "x"}', "number, got 'x'"),
    ("transformer_configs.json", "[1]", "expected an object, not list"),
    ("transformer_configs.json", '{"discriminator": {"hidden_size": 32}}', '"embedding_size" is missing'),
    ("hparams.json", '{"model_hparam_overrides": 5}', "does not tell the sizes of a network"),
    ("config.json", '{"vocab_size": "a"}', "\"vocab_size\" must be of type int, got 'a'"),
    ("tokenizer_config.json", '{"do_lower_case": "no"}', "must be true, false or null, got 'no'"),
    ("tokenizer_config.json", "[]", "expected an object, not list"),
])  # fmt: skip
def test_damaged_notes_of_a_pretrained_model(data, refused_plainly, name, content, said):
    folder = data / "models" / "pretrained"
    folder.mkdir()
    (folder / name).write_text(content)
    (folder / "checkpoint").write_bytes(b"\xff")
    message = refused_plainly("pretrained")
    assert f"{folder}/{name}" in message and said in message


def test_a_finished_trial_says_so(data, no_start):
    before = files(data)
    result = finetune_here(data, "m", SIZES, {"task_names": ["rte"]})
    assert result.returncode == 0 and "nothing to do: all 1 trials are finished" in result.stdout
    after = files(data)
    after.pop("models/m/results/rte_results.json")
    assert after == before


def test_a_trial_in_use(data, refused):
    folder = data / "models/m/finetuning_models/rte_model_1"
    (folder / "trial.json").unlink()
    with FolderLock(str(folder)):
        message = refused()
    assert f"{folder} is in use by process {os.getpid()} on " in message


@pytest.mark.parametrize("name, path", [
    ("model_dir", "file/m"), ("results_txt", "file/r.txt"), ("preprocessed_data_dir", "file/features"),
    ("results_txt", "models"), ("model_dir", "/proc/m"), ("preprocessed_data_dir", "/proc/features"),
])  # fmt: skip
def test_folders_that_cannot_be_written(data, refused, name, path):
    (data / "file").write_text("x")
    hparams = {name: str(data / path), "overwrite": True}
    assert str(data / path).removesuffix("/r.txt") in refused(hparams)


def test_folders_without_rights(data, refused):
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    os.chmod(data / "models/m/results", 0o500)
    assert f"check the rights of {data}/models/m/results" in refused({"overwrite": True})


def test_a_full_disk_while_features_are_made(data, refused):
    write(data, "rte/train.tsv", pairs(800))
    with no_file_over(4096):
        message = refused({"task_names": ["rte"]})
    assert "cannot write the features" in message and "File too large" in message and "free some space" in message
    assert not list(data.rglob("*.tmp-*"))


@contextlib.contextmanager
def no_file_over(size: int):
    """As on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_evaluation_of_another_task_or_labels(data, refused):
    folder = data / "models/m/finetuning_models/rte_model_1"
    alone = {"do_train": False, "init_checkpoint": str(folder)}
    write(data, "mrpc/dev.tsv", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t1\t2\ta\tb\n")
    message = refused({**alone, "task_names": ["mrpc"]})
    assert f"the model in {folder} lacks the head of mrpc: it was fine-tuned on rte" in message
    notes = json.loads((folder / "tasks.json").read_text())
    notes["tasks"]["rte"]["labels"] = ["not_entailment", "entailment"]
    (folder / "tasks.json").write_text(json.dumps(notes))
    message = refused(alone)
    assert f"the model in {folder} was fine-tuned on another rte" in message and "['not_entailment', 'ent" in message


def test_failing_is_quick_and_needs_no_tensorflow(data):
    """As its user runs it, with a TensorFlow that cannot be imported."""
    stub = data / "stub" / "tensorflow"
    stub.mkdir(parents=True)
    (stub / "__init__.py").write_text("raise RuntimeError('imported')")
    for fault in ({"learning_rat": 1}, {"task_names": ["rte"], "keep_best": "bleu"}, {"task_names": ["cola"]}):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        message = failed(data, lambda fault=fault: finetune(data, "m", SIZES, fault, PYTHONPATH=str(data / "stub")))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert any(part in message for part in ("unknown hparam", 'keep_best "bleu"', "cola is missing"))
        assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2


# ---------------------------------------------------------------------------------------------------------------------
# Runs that begin


def test_checkpoints_of_another_size(data, tmp_path_factory):
    """Told by the files beside one, else by its shapes."""
    golden = ROOT / "tests/golden/model/pretrain_ckpt"
    alone = tmp_path_factory.mktemp("released")
    for path in golden.glob("model.ckpt*"):
        shutil.copy(path, alone)
    for folder in (golden, alone):
        hparams = {"task_names": ["rte"], "model_hparam_overrides": {}, "init_checkpoint": str(folder)}
        message = failed(data, lambda hparams=hparams: finetune_here(data, "new", SIZES, hparams))
        assert "is of a model of another size:" in message and "model_size" in message


def test_evaluation_without_a_head(data):
    golden = ROOT / "tests/golden/model/pretrain_ckpt"
    hparams = json.loads((golden / "hparams.json").read_text())["hparams"]
    sizes = {name: hparams[name] for name in ("model_hparam_overrides", "embedding_size", "vocab_size")}
    alone = {"task_names": ["rte"], "do_train": False, "init_checkpoint": str(golden)}
    message = failed(data, lambda: finetune_here(data, "new", sizes, alone))
    assert "lacks the head of rte: it was not fine-tuned on that task" in message and "set do_train true" in message


def test_a_full_disk_while_weights_are_kept(data):
    hparams = {"task_names": ["rte"], "keep_best": "loss", "num_train_epochs": 1}
    with no_file_over(40_000):
        message = failed(data, lambda: finetune_here(data, "m", SIZES, hparams, {"model_dir": str(data / "full")}))
    assert f"cannot write the best weights in {data}/full_1/best" in message and "free some space" in message


def test_texts_of_100_000_words_and_of_none(data):
    """Evaluated in many windows; a text without words gets the answer "empty", as released."""
    write_task(data, "squadv1", {"train.json": questions("the law", "the work and the law"),
                                 "dev.json": questions("work " * 100_000 + "law", "", " \n")})  # fmt: skip
    hparams = {"task_names": ["squadv1"], "max_seq_length": 256, "doc_stride": 240, "eval_batch_size": 64}
    result = finetune_here(data, "long", SIZES, hparams)
    assert result.returncode == 0, result.stderr
    answers = json.loads((data / "models/long/results/squadv1_qa/squadv1_preds.json").read_text())
    assert answers.keys() == {"q0", "q1", "q2"} and answers["q1"] == answers["q2"] == "empty"
    assert answers["q0"] and set(answers["q0"].split()) <= {"work", "law"}
