"""What travels with the weights: the vocabulary, how text is tokenized, where the model comes from."""

import argparse
import os
from typing import Any, NamedTuple

from model.tokenization import load_vocab
from util import filesystem
from util.errors import UserError
from util.files import read_json, write_json, write_text
from util.log import say

VOCAB, TOKENIZER, TOKENIZER_JSON = "vocab.txt", "tokenizer_config.json", "tokenizer.json"
HPARAMS, DATA, NETWORKS = "hparams.json", "data.json", "transformer_configs.json"  # of model folders
SPECIAL = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]",
           "mask_token": "[MASK]"}  # fmt: skip


class Companions(NamedTuple):
    """What was found beside the sources."""

    tokens: list[str] | None  # the vocabulary's pieces
    do_lower_case: bool
    strip_accents: bool
    notes: dict[str, Any]  # JSON files of a model folder, by name


def add_text_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags that say how text becomes ids, where the files beside the weights do not."""
    parser.add_argument("--vocab-file", help="default: vocab.txt beside the weights")
    for name, meaning in (("lower-case", "text is lower-cased"), ("strip-accents", "accents are dropped then")):
        both = parser.add_mutually_exclusive_group()
        dest = name.replace("-", "_")
        both.add_argument(f"--do-{name}", dest=dest, action="store_true", default=None, help=f"{meaning}; default: "
                          "as the files beside the weights say")  # fmt: skip
        both.add_argument(f"--no-{name}", dest=dest, action="store_false")


def find_companions(
    folders: list[str], vocab_file: str | None, lower: bool | None, strip: bool | None, rows: int
) -> Companions:
    """Looks for vocabulary and settings beside the sources; the first folder that has them counts.

    Args:
      folders: of the sources.
      vocab_file, lower, strip: what the user says, where they do.
      rows: of the token table.

    Raises:
      UserError: a vocabulary that is malformed or larger than the table.
    """
    tokens = _vocabulary(folders, vocab_file)
    if tokens and len(tokens) > rows:
        raise UserError(f"the vocabulary has {len(tokens)} pieces, the token table {rows} rows; pass --vocab-file")
    found_lower, found_strip = _settings(folders)
    if lower is None and (lower := found_lower) is None:
        lower = not tokens or not any(t != t.lower() for t in tokens if not t.startswith("["))
        if tokens:
            say(f"note: no file says whether text is lower-cased; the vocabulary looks {'un' * lower}cased")
    strip = strip if strip is not None else found_strip
    notes = {}
    for name in (HPARAMS, DATA, NETWORKS):
        if filesystem.exists(path := os.path.join(folders[0], name)):
            notes[name] = read_json(path)
    return Companions(tokens, lower, lower and strip is not False, notes)


def _vocabulary(folders: list[str], vocab_file: str | None) -> list[str] | None:
    for path in [vocab_file] if vocab_file else [os.path.join(folder, VOCAB) for folder in folders]:
        if vocab_file or filesystem.exists(path):
            return load_vocab(path).tokens
    for folder in folders:
        model = _json(folder, TOKENIZER_JSON).get("model", {})
        if model.get("type") == "WordPiece" and isinstance(model.get("vocab"), dict):
            return sorted(model["vocab"], key=model["vocab"].get)
    say(f"note: no {VOCAB} beside the weights, so none is written; name one with --vocab-file")
    return None


def _settings(folders: list[str]) -> tuple[bool | None, bool | None]:
    """do_lower_case and strip_accents as the files say; None where they do not."""
    for folder in folders:
        normalizer = _json(folder, TOKENIZER_JSON).get("normalizer") or {}
        for found, name in ((_json(folder, TOKENIZER), "do_lower_case"), (normalizer, "lowercase")):
            if isinstance(found.get(name), bool):
                return found[name], found.get("strip_accents")
        if isinstance(lower := _json(folder, HPARAMS).get("do_lower_case"), bool):
            return lower, None
    return None, None


def _json(folder: str, name: str) -> dict[str, Any]:
    path = os.path.join(folder, name)
    value = read_json(path) if filesystem.exists(path) else {}
    return value if isinstance(value, dict) else {}


def write_vocab(folder: str, companions: Companions) -> None:
    """Writes vocab.txt and how text becomes its pieces."""
    settings = {"do_lower_case": companions.do_lower_case, "strip_accents": companions.strip_accents}
    write_json(os.path.join(folder, TOKENIZER), settings)
    if companions.tokens:
        write_text(os.path.join(folder, VOCAB), "\n".join(companions.tokens) + "\n")


def write_hugging_face_tokenizer(folder: str, companions: Companions, longest: int) -> None:
    """Writes the files from which AutoTokenizer makes this project's tokenizer; nothing without a vocabulary."""
    if not companions.tokens:
        return
    write_vocab(folder, companions)
    settings = {
        "tokenizer_class": "ElectraTokenizer",
        "do_lower_case": companions.do_lower_case,
        "strip_accents": companions.strip_accents,
        "tokenize_chinese_chars": True,
        "model_max_length": longest,
        **SPECIAL,
    }
    write_json(os.path.join(folder, TOKENIZER), settings)
    write_json(os.path.join(folder, "special_tokens_map.json"), SPECIAL)
