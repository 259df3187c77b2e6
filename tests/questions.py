"""Small files of questions, and the outputs of a head that knows the answers."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from configure_finetuning import FinetuningConfig, make_config
from finetune.qa.qa_tasks import QATask
from model.tokenization import SPECIAL_TOKENS, FullTokenizer, Vocabulary

LETTERS = "abcdefghijklmnopqrstuvwxyzäöüéß0123456789東京"
PIECES = [
    *SPECIAL_TOKENS,
    *LETTERS,
    *(f"##{letter}" for letter in LETTERS),
    *"!?.,-'()[]\"’“”€%",
    *("the", "##the", "##s", "ab", "##ab", "##aba", "japan", "##ese"),
]
VOCABULARY = Vocabulary("made up", PIECES, "")

GERMAN = "Käthe Müller (1895–1943) aß in Köln täglich Grünkohl; ihr Bruder, Jörg, zog später nach Österreich."


def make_tokenizer(lower: bool = True, strip_accents: bool = True) -> FullTokenizer:
    """With a piece for every letter."""
    return FullTokenizer(VOCABULARY, lower, strip_accents)


def question(name: str, text: str, *answers: str, context: str = "", **more: Any) -> dict:
    """A question of SQuAD's format; the answers are looked for in the context."""
    found = [{"text": answer, "answer_start": context.find(answer)} for answer in answers]
    return {"id": name, "question": text, "answers": found, **more}


def squad(*paragraphs: tuple[str, list[dict]]) -> dict:
    """The content of a file of SQuAD's format."""
    return {"data": [{"paragraphs": [{"context": context, "qas": questions} for context, questions in paragraphs]}]}


def as_mrqa(content: dict) -> str:
    """The same questions as lines of MRQA's format."""
    lines = [json.dumps({"header": {"dataset": "own"}})]
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            questions = [_as_mrqa(item) for item in paragraph["qas"]]
            lines.append(json.dumps({"context": paragraph["context"], "qas": questions}, ensure_ascii=False))
    return "\n".join(lines) + "\n"


def _as_mrqa(item: dict) -> dict:
    detected = [
        {
            "text": answer["text"],
            "char_spans": [[answer["answer_start"], answer["answer_start"] + len(answer["text"]) - 1]],
        }
        for answer in item["answers"]
    ]
    texts = [answer["text"] for answer in item["answers"]]
    return {"qid": item["id"], "question": item["question"], "answers": texts, "detected_answers": detected}


def make_qa_config(data_dir: Path, task: str = "squad", **hparams: Any) -> FinetuningConfig:
    """Short windows."""
    sizes = {"max_seq_length": 48, "max_query_length": 12, "doc_stride": 16, "vocab_file": "unused"}
    return make_config("m", str(data_dir), {"task_names": [task], **sizes, **hparams})


def write_split(data_dir: Path, task: str, name: str, content: dict | str) -> Path:
    """Writes a file of a task."""
    path = data_dir / "finetuning_data" / task / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return path


def right_outputs(task: QATask, features: dict) -> dict[str, np.ndarray]:
    """Outputs for a window with the answer's place in its features: as high as can be there, "impossible" elsewhere."""
    start, end = (features[f"{task.name}_{name}_positions"] for name in ("start", "end"))
    length, score = len(features["input_ids"]), 10.0 if start else 1.0
    outputs = {"loss": np.float32(0.5), "answerable_logit": np.float32(-10.0 if start else 10.0)}
    outputs["start_logits"] = score * (np.arange(length) == start).astype(np.float32)
    if task.config.joint_prediction:
        outputs["start_top_index"] = np.array([start, 1])
        outputs["start_top_log_probs"] = np.array([score - 11, -20], np.float32)
        outputs["end_top_index"] = np.array([[end, 1], [end, 1]])
        outputs["end_top_log_probs"] = np.array([[score - 11, -20]] * 2, np.float32)
    else:
        outputs["end_logits"] = score * (np.arange(length) == end).astype(np.float32)
    return outputs
