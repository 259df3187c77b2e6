"""Metrics of tagging: of spans, as the conlleval script counts them, and of single words."""

from collections.abc import Sequence

from finetune.feature_spec import Features
from finetune.tagging.spans import spans_of
from finetune.task import Outputs, Results, Scorer

TAGGING_METRICS = ("precision", "recall", "f1", "accuracy")


class TaggingScorer(Scorer):
    """Precision, recall and F1 of spans, the share of words with the right label, and the mean loss of a word.

    Args:
      task: whose features are scored.
      labels: by their ids; BIOES unless only accuracy is asked for.
      metrics: names, in the order in which they are printed.
      loss_factor: of the reported loss; the released code doubles it.
    """

    def __init__(self, task: str, labels: Sequence[str], metrics: Sequence[str], loss_factor: float = 1.0):
        self.loss_factor = loss_factor
        self.feature, self.labels, self.metrics = f"{task}_labels", labels, metrics
        self.in_spans = any(name != "accuracy" for name in metrics)
        self.gold = self.predicted = self.right = 0  # spans
        self.words = self.right_words = 0
        self.loss = 0.0

    def update(self, features: Features, outputs: Outputs) -> None:
        gold = features[self.feature]
        predicted = [int(label) for label in outputs["predictions"][: len(gold)]]
        self.words += len(gold)
        self.right_words += sum(a == b for a, b in zip(gold, predicted))
        self.loss += float(outputs["loss"])
        if self.in_spans:
            gold_spans = set(spans_of([self.labels[label] for label in gold]))
            predicted_spans = set(spans_of([self.labels[label] for label in predicted]))
            self.gold += len(gold_spans)
            self.predicted += len(predicted_spans)
            self.right += len(gold_spans & predicted_spans)

    def results(self) -> Results:
        scores = {
            "precision": _percent(self.right, self.predicted),
            "recall": _percent(self.right, self.gold),
            "f1": _percent(2 * self.right, self.predicted + self.gold),
            "accuracy": _percent(self.right_words, self.words),
        }
        return {
            **{name: scores[name] for name in self.metrics},
            "loss": self.loss_factor * self.loss / max(1, self.words),
        }


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0
