"""Tasks on one's own data by hparams alone: trained from random weights, evaluated, and predicted without labels."""

import json
import random
import re
import shutil
from pathlib import Path

import pytest

from tests.finetune.task_files import write
from tests.finetuning_runs import NO_DROPOUT, finetune_here, results, sentence
from tests.training_runs import ROOT

TOPICS = {"law": "license", "code": "software", "money": "price", "rights": "freedom"}  # a label, and the word for it
COUNTS = {"train": 400, "dev": 40, "test": 12}


@pytest.fixture
def data(tmp_path):
    """A data folder with a vocabulary."""
    shutil.copy(ROOT / "tests/golden/vocab_1000.txt", tmp_path / "vocab.txt")
    return tmp_path


def learned(data: Path, description: dict, **hparams) -> tuple[dict[str, float], Path]:
    """Trains a task, evaluates it and predicts its test file: the dev metrics, and the file of predictions."""
    output, name = run(data, description, **hparams), description["name"]
    assert "failed to train" not in output, results(data, "m", name)
    written = re.findall(r"^written: (.*predictions\.\w+)$", output, re.MULTILINE)
    assert len(written) == 1, output
    return results(data, "m", name)["trials"][0]["results"][name]["dev"], Path(written[0])


def run(data: Path, description: dict, **hparams) -> str:
    """Runs the command for a task; gives what it said."""
    hparams = {"task_names": [description["name"]], "custom_tasks": [description], "do_predict": True,
               "vocab_size": 1000, "layerwise_lr_decay": 0, "bucketing": False, "num_train_epochs": 4,
               **hparams}  # fmt: skip
    result = finetune_here(data, "m", hparams, NO_DROPOUT)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_four_labels_in_jsonl(data):
    words, rows = random.Random(0), {}
    for split, count in COUNTS.items():
        labels = [words.choice(list(TOPICS)) for _ in range(count)]
        rows[split] = [(" ".join([*sentence(words), TOPICS[label]]), label) for label in labels]
        lines = ({"title": text} | ({} if split == "test" else {"topic": label}) for text, label in rows[split])
        write(data, f"topics/{split}.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    description = {"name": "topics", "kind": "classification", "text_a": "title", "label": "topic",
                   "metrics": ["accuracy", "f1"]}  # fmt: skip
    scores, path = learned(data, description)
    assert scores.keys() == {"accuracy", "f1", "loss"} and scores["accuracy"] > 60  # by chance 25
    header, *predicted = [line.split("\t") for line in path.read_text().splitlines()]
    assert header == ["id", "label", *(f"probability of {label}" for label in sorted(TOPICS))]
    assert [row[0] for row in predicted] == [str(i) for i in range(12)]
    assert sum(row[1] == label for row, (_, label) in zip(predicted, rows["test"])) > 6
    for row in predicted:
        probabilities = [float(p) for p in row[2:]]
        assert abs(sum(probabilities) - 1) < 1e-5 and sorted(TOPICS)[probabilities.index(max(probabilities))] == row[1]
    whole = path.read_bytes()
    for name in ("train.jsonl", "dev.jsonl"):
        (data / "finetuning_data/topics" / name).unlink()  # the trained model needs them no more
    path.unlink()
    run(data, description, do_train=False, do_eval=False)
    assert path.read_bytes() == whole


def test_several_labels_in_csv(data):
    words = random.Random(1)
    for split, count in COUNTS.items():
        lines = ["key,text" + ("" if split == "test" else ",tags")]
        for i in range(count):
            tags = sorted(words.sample(list(TOPICS), i % 3))
            text = ", ".join([*sentence(words), *(TOPICS[tag] for tag in tags)])
            lines.append(f'{split}-{i},"{text}"' + ("" if split == "test" else f",{';'.join(tags)}"))
        write(data, f"tickets/{split}.csv", "\n".join(lines))
    scores, path = learned(data, {"name": "tickets", "kind": "classification", "text_a": "text", "label": "tags",
                                  "id": "key", "multi_label": True, "label_separator": ";"})  # fmt: skip
    assert scores.keys() == {"f1", "accuracy", "loss"} and scores["f1"] > 35
    rows = [line.split("\t") for line in path.read_text().splitlines()[1:]]
    assert [row[0] for row in rows] == [f"test-{i}" for i in range(12)]
    for row in rows:
        above = [label for label, p in zip(sorted(TOPICS), row[2:]) if float(p) > 0.5]
        assert row[1] == ";".join(above)


def test_iob1_with_two_hyphens(data):
    """Two spans of one class side by side need a B; the class LOC-deriv keeps its hyphen."""
    words, classes, sentences = random.Random(2), {"law": "LOC-deriv", "work": "PER"}, {}
    for split, count in COUNTS.items():
        lines, sentences[split] = [], []
        for _ in range(count):
            chosen, before = sentence(words), None
            sentences[split].append(chosen)
            for word in chosen:
                name = classes.get(word)
                tag = f"{'B' if name == before else 'I'}-{name}" if name else "O"
                lines.append(word if split == "test" else f"{word}\t{tag}")
                before = name
            lines.append("")
        write(data, f"names/{split}.txt", "\n".join(lines))
    scores, path = learned(data, {"name": "names", "kind": "tagging", "scheme": "iob1"})
    assert scores.keys() == {"precision", "recall", "f1", "loss"} and scores["f1"] > 60
    blocks = [block.split("\n") for block in path.read_text().strip().split("\n\n")]
    predicted = [[line.split("\t") for line in block] for block in blocks]
    assert [[word for word, _ in one] for one in predicted] == sentences["test"]
    tags = {tag for one in predicted for _, tag in one}
    assert "I-LOC-deriv" in tags and tags <= {"O", "I-PER", "B-PER", "I-LOC-deriv", "B-LOC-deriv"}


def test_questions_in_german(data):
    """Umlauts and sharp s come back as the text has them, whatever the vocabulary makes of them."""
    words, texts = random.Random(3), {}
    places = ["Köln", "Weißwasser", "Übersee", "Münster"]
    for split, count in COUNTS.items():
        paragraphs = []
        for i in range(count):
            place = words.choice(places)
            text = f"Nahe bei {place} fließt ein Fluß, größer als die Elbe."
            question = {"id": f"{split}{i}", "question": "Wo fließt der Fluß?"}
            if split != "test":
                question["answers"] = [{"text": place, "answer_start": text.index(place)}]
            texts[question["id"]] = text
            paragraphs.append({"context": text, "qas": [question]})
        write(data, f"fragen/{split}.json", json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}))
    hparams = {"max_seq_length": 96, "learning_rate": 0.003, "num_train_epochs": 2}
    scores, path = learned(data, {"name": "fragen", "kind": "qa"}, **hparams)
    assert scores.keys() == {"exact_match", "f1", "loss"} and scores["f1"] > 60
    answers = json.loads(path.read_text())
    assert list(answers) == [f"test{i}" for i in range(12)]
    assert all(answer and answer in texts[name] for name, answer in answers.items())
