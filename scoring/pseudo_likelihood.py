"""Pseudo-log-likelihoods (Clark et al., EMNLP 2020): PLL(x) = sum over the tokens of log p(x_t | all the others).

Electric needs one pass a text, a masked language model one a token. Nats; [CLS] and [SEP] are no tokens of a text.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from model.tokenization import CLS, MASK, SEP
from scoring.lines import CHUNK_LINES
from scoring.networks import Model
from scoring.windows import Ids, Window, batches, each_token, merged, windows
from util.errors import UserError
from util.log import say

METHODS = ("electric", "mlm")


class Scorer(Protocol):
    """What gives log p of the tokens of texts."""

    method: str
    longest: int
    chunk: int  # lines that are scored together: some seconds of work

    def __call__(self, texts: Sequence[Ids]) -> list[np.ndarray]:
        """For each text its tokens' log p, [tokens] float32."""


class ElectricScorer:
    """log p(x_t | the others) = -E(x)_t, up to a constant that no text changes: the model is not normalised."""

    method, chunk = "electric", CHUNK_LINES

    def __init__(self, model: Model):
        self.longest, self._energies = model.longest, model.main_logits()
        self._specials = [model.source.id(token) for token in (CLS, SEP)]

    def __call__(self, texts: Sequence[Ids]) -> list[np.ndarray]:
        cut = windows(texts, self.longest)
        energies = each_token(cut, self.longest, *self._specials, self._energies)
        return merged(cut, [-values for values in energies], len(texts))


class MaskedLMScorer:
    """log p of each token where it alone is masked."""

    method, chunk = "mlm", CHUNK_LINES // 8

    def __init__(self, model: Model):
        self.longest, self._log_probabilities = model.longest, model.token_log_probabilities()
        self._cls, self._sep, self._mask = (model.source.id(token) for token in (CLS, SEP, MASK))

    def __call__(self, texts: Sequence[Ids]) -> list[np.ndarray]:
        cut = windows(texts, self.longest)
        return merged(cut, self._windows(cut), len(texts))

    def _windows(self, cut: Sequence[Window]) -> list[np.ndarray]:
        counts = [len(window.kept) for window in cut]
        places = np.array([place for window in cut for place in window.kept], np.int32) + 1
        scores = np.zeros(len(places), np.float32)
        rows = np.repeat(np.arange(len(cut)), counts)
        for batch in batches([window.ids for window in cut], self.longest, self._cls, self._sep, rows):
            at, each = places[batch.rows], np.arange(len(batch.rows))
            tokens = batch.ids[each, at]
            batch.ids[each, at] = self._mask
            scores[batch.rows] = self._log_probabilities(batch.ids, batch.lengths, at, tokens)
        return np.split(scores, np.cumsum(counts)[:-1])


def make_scorer(model: Model, method: str | None) -> Scorer:
    """The scorer that a model has.

    Args:
      method: one of `METHODS`; None: "electric" where the model is Electric, else "mlm".

    Raises:
      UserError: the model has not the head that the method needs.
    """
    what = f"the checkpoint {model.reader.prefix} holds {model.description}"
    method = method or ("electric" if model.is_electric else "mlm")
    if method == "mlm":
        if model.is_masked_lm:
            return MaskedLMScorer(model)
        also = "; use --method electric" if model.is_electric else ""
        raise UserError(f"{what}, and --method mlm needs a masked language model (ELECTRA's generator, BERT){also}")
    if model.is_electric:
        return ElectricScorer(model)
    if model.is_discriminator and not model.is_masked_lm and model.source.is_electric is None:
        say(f"note: nothing beside {model.reader.prefix} tells what its head was trained for; taken for Electric's")
        return ElectricScorer(model)
    also = "; its generator can score text with --method mlm" if model.is_masked_lm else ""
    raise UserError(
        f"{what}, and --method electric needs the energies of a model trained with objective=electric: a discriminator "
        f"tells replaced tokens from original ones, which is no likelihood{also}"
    )
