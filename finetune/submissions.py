"""Files of predictions: tables for anybody, and those that GLUE's server takes."""

import os
from collections.abc import Iterable, Sequence

import numpy as np

from finetune.task import Outputs
from util.files import write_text, writing

Answers = Iterable[tuple[str, Outputs]]  # what an example is called, and its head's outputs


def write_table(path: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Writes tab-separated columns (tabs and line ends within a field become spaces) and gives the path."""
    clean = str.maketrans("\t\r\n", "   ")
    lines = ["\t".join(str(field).translate(clean) for field in row) for row in (header, *rows)]
    with writing(f"the predictions {path}"):
        write_text(path, "\n".join(lines) + "\n")
    return path


def write_classes(path: str, labels: Sequence[str], answers: Answers, multi_label: bool, separator: str) -> str:
    """Writes the predicted classes, and the probability of each."""
    rows = []
    for ident, outputs in answers:
        logits = np.asarray(outputs["logits"], np.float64)
        if multi_label:
            probabilities = 1.0 / (1.0 + np.exp(-logits))
            label = separator.join(name for name, chosen in zip(labels, outputs["predictions"]) if chosen)
        else:
            probabilities = np.exp(logits - logits.max())
            probabilities /= probabilities.sum()
            label = labels[int(outputs["predictions"])]
        rows.append((ident, label, *(f"{p:.6f}" for p in probabilities)))
    return write_table(path, ("id", "label", *(f"probability of {label}" for label in labels)), rows)


def write_values(path: str, answers: Iterable[tuple[str, float]]) -> str:
    """Writes predicted numbers."""
    return write_table(path, ("id", "value"), ((ident, f"{value:.6f}") for ident, value in answers))


def write_tags(path: str, sentences: Iterable[tuple[Sequence[str], Sequence[str]]]) -> str:
    """Writes words with their predicted tags, one a line, a blank line after each sentence."""
    text = "".join("".join(f"{word}\t{tag}\n" for word, tag in zip(*sentence)) + "\n" for sentence in sentences)
    with writing(f"the predictions {path}"):
        write_text(path, text)
    return path


def write_glue(path: str, task: str, split: str, name: str, answers: Iterable[tuple[str, str]]) -> str:
    """Writes a file for GLUE's server under its official name, and gives its path.

    The files of all tasks of one trial come together in a folder beside `path`: its name without task and split.
    """
    folder, base = os.path.split(path)
    together = os.path.join(folder, "glue_" + base.replace(f"{task}_{split}_", ""))
    return write_table(os.path.join(together, name), ("index", "prediction"), answers)
