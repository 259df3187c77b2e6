"""Scores a stream of lines: chunk by chunk, continued where a run stopped."""

import math

import numpy as np

from model.tokenization import UNK, FullTokenizer
from scoring.continued import Rows
from scoring.lines import Line, Seen, chunks, count_lines, encoded, read_lines
from scoring.pseudo_likelihood import Scorer
from scoring.score_rows import JsonRows, Scored, TsvRows
from util.errors import UserError
from util.log import say
from util.progress import Progress


def score_stream(path: str, tokenizer: FullTokenizer, scorer: Scorer, form: TsvRows | JsonRows, output: Rows) -> None:
    """Writes a row for each line that `output` has not yet.

    A chunk of which some lines are done is scored as a whole again: the same batches, so the same digits.

    Raises:
      UserError: no line has a token, or the rows that are done are of another input.
    """
    seen, done, sums = Seen(), output.done, 0.0
    if done:
        say(f"{done} lines are scored already, going on from line {done + 1}")
    progress = Progress("scoring", count_lines(path), "lines", done=done)
    last = 0
    for chunk in chunks(read_lines(path, seen.files), scorer.chunk):
        last = chunk[-1].number
        if chunk[0].number <= done <= last:
            _check_same(chunk[done - chunk[0].number], form, output, path)
        if last <= done:
            continue
        texts = encoded(chunk, tokenizer)
        found = [Scored(line, tokenizer.convert_ids_to_tokens(ids), scores)
                 for line, ids, scores in zip(chunk, texts, scorer(texts)) if line.number > done]  # fmt: skip
        for scored, ids in zip(found, texts[len(texts) - len(found) :]):
            seen.add(ids, scorer.longest, tokenizer.vocab[UNK])
            sums += float(np.sum(scored.scores, dtype=np.float64))
        output.write([form.row(scored) for scored in found])
        progress.update(last)
    if last < done:
        raise UserError(f"the output file holds {done} lines, --input {path} only {last}: it was made from another one")
    _finish(seen, sums, scorer, progress, path, done)


def _check_same(line: Line, form: TsvRows | JsonRows, output: Rows, path: str) -> None:
    try:
        text = form.text_of(output.last)
    except (ValueError, LookupError, TypeError) as error:
        raise UserError(f"row {line.number} of the output file is damaged; name another --output-file") from error
    if text != form.text(line):
        raise UserError(
            f"the output file was made from another input: its last row, of line {line.number}, holds {text[:60]!r}, "
            f"there {path} has {line.text[:60]!r}; name another --output-file"
        )


def _finish(seen: Seen, sums: float, scorer: Scorer, progress: Progress, path: str, done: int) -> None:
    if not seen.lines and done:
        say("nothing to do: all lines are scored")
        return
    if not seen.tokens and not done:
        raise UserError(f"--input {path} has no line with text")
    progress.close()
    say(("of the lines scored now: " if done else "") + "; ".join(seen.summary(scorer.longest)))
    if seen.tokens:
        mean = sums / seen.tokens
        perplexity = f", pseudo-perplexity {math.exp(-mean):.4g}" if scorer.method == "mlm" else ""
        say(f"mean of log p a token: {mean:.4f}{perplexity}")
