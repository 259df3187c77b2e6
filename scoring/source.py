"""A model that text is put to: its checkpoint, vocabulary and notes, found before TensorFlow starts."""

import argparse
import os
import sys
from typing import Any, NamedTuple

from conversion.companions import HPARAMS, TOKENIZER_JSON, VOCAB, add_text_arguments, find_companions
from model.checkpoint_files import find
from model.tokenization import SPECIAL_TOKENS, FullTokenizer, Vocabulary, load_vocab
from util import filesystem
from util.errors import UserError

SHORTEST = 8  # tokens; below it a window has no room for a context


class Source(NamedTuple):
    """What lies in a model's folder."""

    path: str  # of the checkpoint
    tokenizer: FullTokenizer
    do_lower_case: bool
    strip_accents: bool
    hparams: dict[str, Any]  # of the run that made it; empty where nothing tells
    heads: int | None  # num_attention_heads, where the user says it
    max_seq_length: int | None  # the longest input, where the user says it

    @property
    def trained_length(self) -> int | None:
        """The length of the examples that the model was trained on, where the notes tell."""
        return self.hparams.get("max_seq_length")

    @property
    def is_electric(self) -> bool | None:
        """Whether the notes say that the main head gives Electric's energies; None where they do not tell."""
        known = [self.hparams.get(name) for name in ("objective", "electric_objective")]
        return None if known == [None, None] else "electric" in known or True in known

    def id(self, token: str) -> int:
        """The id of a special token."""
        return self.tokenizer.vocab[token]


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags that say which model, and how it takes text."""
    parser.add_argument("--model-dir", required=True, metavar="PATH", help="a model folder of run_pretraining.py, a "
                        "released or converted checkpoint's folder or prefix, or a Hugging Face folder")  # fmt: skip
    parser.add_argument("--max-seq-length", type=int, help="tokens that the network sees at once, [CLS] and [SEP] "
                        "included; default: as in training, else the position table's length")  # fmt: skip
    parser.add_argument("--num-attention-heads", type=int, help="where no file beside the weights tells; default: "
                        "hidden size / 64")  # fmt: skip
    add_text_arguments(parser)


def find_source(args: argparse.Namespace) -> Source:
    """The model that the flags name.

    Raises:
      UserError: no checkpoint, no vocabulary, or a length that leaves no room.
    """
    path = find(args.model_dir)
    if path is None:
        raise UserError(f"--model-dir {args.model_dir} is a folder without a checkpoint")
    if args.max_seq_length is not None and args.max_seq_length < SHORTEST:
        raise UserError(f"--max-seq-length must be at least {SHORTEST}; got {args.max_seq_length}")
    folder = os.path.dirname(path) or "."
    beside = [os.path.join(folder, name) for name in (VOCAB, TOKENIZER_JSON)]
    if not args.vocab_file and not any(map(filesystem.exists, beside)):
        raise UserError(f"there is no {VOCAB} beside the checkpoint {path}; name it with --vocab-file")
    found = find_companions([folder], args.vocab_file, args.lower_case, args.strip_accents, sys.maxsize)
    where = args.vocab_file or os.path.join(folder, VOCAB)
    vocab = load_vocab(where) if filesystem.exists(where) else Vocabulary(where, found.tokens, "")
    if missing := [token for token in SPECIAL_TOKENS if token not in vocab.ids]:
        raise UserError(f"the vocabulary beside {path} lacks {', '.join(missing)}; name another with --vocab-file")
    tokenizer = FullTokenizer(vocab, found.do_lower_case, found.strip_accents)
    hparams = found.notes.get(HPARAMS, {})
    return Source(path, tokenizer, found.do_lower_case, found.strip_accents, hparams.get("hparams", hparams),
                  args.num_attention_heads, args.max_seq_length)  # fmt: skip
