"""Writes the demo's text: the English documentation inside Python, so that nothing is downloaded.

    python -m scripts.demo_corpus FOLDER

A document is a topic of Python's reference manual or the docstrings of one source file of the standard library. The
sources are parsed, never imported. Every tenth document is held out. One sentence a line, documents a blank line apart.
"""

import ast
import os
import re
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from util.errors import UserError, run_main
from util.files import write_text
from util.log import count_text, say, table

TRAINING_FILES = 4
HELD_OUT_EVERY = 10
LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__", "lib2to3"}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
SENTENCE_END = re.compile(r"(?<=[.!?:])\s+(?=[A-Z\"'(])")
WORD = re.compile(r"[A-Za-z]+[,.;:!?)]*$")


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text's paragraphs; paragraphs that are mostly code, tables or grammar are left out."""
    for paragraph in re.split(r"\n\s*\n", text):
        words = paragraph.split()
        prose = sum(1 for word in words if WORD.match(word))
        if len(words) >= 4 and prose >= 0.6 * len(words) and ">>>" not in words:
            yield from SENTENCE_END.split(" ".join(words))


def topics(tree: ast.Module) -> Iterator[str]:
    """The texts of pydoc's one large dictionary of topics, in its order."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            yield from ast.literal_eval(node).values()


def docstrings(tree: ast.Module) -> str:
    """The docstrings of a module, its classes and its functions."""
    found = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, DOCUMENTED))
    return "\n\n".join(text for text in found if text)


def texts(library: Path) -> Iterator[str]:
    """The text of each document, in the sorted order of the source files."""
    for folder, subfolders, names in os.walk(library):
        subfolders[:] = sorted(set(subfolders) - LEFT_OUT)
        for name in sorted(names):
            if name.endswith(".py"):
                tree = ast.parse((Path(folder) / name).read_bytes())
                if Path(folder).name == "pydoc_data" and name == "topics.py":
                    yield from topics(tree)
                else:
                    yield docstrings(tree)


def documents(library: Path) -> Iterator[list[str]]:
    """The sentences of each document, without those that an earlier document has too, or the same one twice."""
    seen: set[str] = set()
    for text in texts(library):
        document = [line for line in dict.fromkeys(sentences(text)) if line not in seen]
        seen.update(document)
        if document:
            yield document


def write(name: str, path: Path, kept: list[list[str]]) -> list[object]:
    """Writes documents to a file; returns a row for the table of sizes."""
    text = "\n".join("\n".join(document) + "\n" for document in kept)
    write_text(str(path), text)
    return [name, len(kept), sum(map(len, kept)), count_text(len(text.split())), count_text(len(text.encode()))]


def main() -> None:
    """Writes FOLDER/train/part-<i>.txt and FOLDER/heldout/part-0.txt and prints their sizes."""
    if len(sys.argv) != 2:
        raise UserError("usage: python -m scripts.demo_corpus FOLDER")
    folder = Path(sys.argv[1])
    library = Path(sysconfig.get_path("stdlib"))
    everything = list(documents(library))
    if len(everything) < 100:
        raise UserError(f"only {len(everything)} documents found: Python's sources are not in {library}")
    held_out = everything[::HELD_OUT_EVERY]
    training = [document for i, document in enumerate(everything) if i % HELD_OUT_EVERY]
    rows = [
        write(f"train/part-{i}.txt", folder / "train" / f"part-{i}.txt", training[i::TRAINING_FILES])
        for i in range(TRAINING_FILES)
    ]
    rows.append(write("heldout/part-0.txt", folder / "heldout" / "part-0.txt", held_out))
    say(table(["file", "documents", "sentences", "words", "bytes"], rows))


if __name__ == "__main__":
    run_main(main)
