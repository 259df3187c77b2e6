"""What both networks of ELECTRA say of a text's tokens: which look replaced, and what [MASK] could be."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from model.tokenization import CLS, SEP
from scoring.lines import Line
from scoring.networks import Model
from scoring.spans import SpanTokenizer, Token
from scoring.windows import batches, each_token, merged, windows
from util.errors import UserError
from util.log import say


class Filler(NamedTuple):
    """A piece that could stand at [MASK]."""

    piece: str
    probability: float


class Judged(NamedTuple):
    """A token and what is said of it."""

    token: Token
    replaced: float | None  # the discriminator's probability; None without one
    fillers: list[Filler]  # likeliest first; of [MASK] alone


class Inspector:
    """Judges the tokens of lines.

    A discriminator has never met [MASK]: it reads the text with the likeliest filler in each one's place.

    Args:
      model: has a discriminator, a masked language model or both.
      fillers: how many are given for a [MASK].

    Raises:
      UserError: the model has neither.
    """

    def __init__(self, model: Model, fillers: int):
        if model.is_electric or not (model.is_discriminator or model.is_masked_lm):
            also = "; score_text.py --tokens shows Electric's energies" if model.is_electric else ""
            raise UserError(
                f"the checkpoint {model.reader.prefix} holds {model.description}; a discriminator or a masked language "
                f"model is needed{also}"
            )
        source = model.source
        self.longest, self.is_discriminator = model.longest, model.is_discriminator
        self._tokenizer = SpanTokenizer(source.tokenizer, source.do_lower_case, source.strip_accents)
        self._pieces, self._specials = source.tokenizer.inv_vocab, (source.id(CLS), source.id(SEP))
        self._logits = model.main_logits() if model.is_discriminator else None
        self._best = model.fillers(fillers) if model.is_masked_lm else None
        self._prefix = model.reader.prefix
        if not self.is_discriminator:
            say("note: the checkpoint has no discriminator, so nothing is said of replaced tokens")

    def __call__(self, lines: Sequence[Line]) -> list[list[Judged]]:
        """The tokens of each line.

        Raises:
          UserError: a [MASK] and no masked language model to fill it.
        """
        tokens = [self._tokenizer(line.text) for line in lines]
        masks = [{i for i, token in enumerate(one) if token.is_mask} for one in tokens]
        if self._best is None:
            for line, places in zip(lines, masks):
                if places:
                    raise UserError(
                        f"line {line.number} has a [MASK], and the checkpoint {self._prefix} holds no masked language "
                        "model to fill it"
                    )
        ids = [[token.id for token in one] for one in tokens]
        fillers = self._fill(ids, masks)
        replaced = self._judge(ids)
        return [
            [Judged(token, float(p[i]) if p is not None else None, found.get(i, [])) for i, token in enumerate(one)]
            for one, p, found in zip(tokens, replaced, fillers)
        ]

    def _fill(self, ids: list[list[int]], masks: list[set[int]]) -> list[dict[int, list[Filler]]]:
        """The fillers of each text's masks by place; puts the likeliest ones into `ids`."""
        found: list[dict[int, list[Filler]]] = [{} for _ in ids]
        cut = windows(ids, self.longest)
        jobs = [(w, place) for w, window in enumerate(cut) for place in window.kept
                if window.start + place in masks[window.text]]  # fmt: skip
        places = np.array([place + 1 for _, place in jobs], np.int32)
        for batch in batches([window.ids for window in cut], self.longest, *self._specials, [w for w, _ in jobs]):
            for row, pieces, values in zip(batch.rows, *self._best(batch.ids, batch.lengths, places[batch.rows])):
                window, place = cut[jobs[row][0]], jobs[row][1]
                best = [Filler(self._pieces[int(piece)], float(value)) for piece, value in zip(pieces, values)]
                found[window.text][window.start + place] = best
                ids[window.text][window.start + place] = int(pieces[0])
        return found

    def _judge(self, ids: list[list[int]]) -> list[np.ndarray | None]:
        if self._logits is None:
            return [None] * len(ids)
        cut = windows(ids, self.longest)
        logits = each_token(cut, self.longest, *self._specials, self._logits)
        return merged(cut, [1.0 / (1.0 + np.exp(-values)) for values in logits], len(ids))
