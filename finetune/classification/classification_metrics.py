"""Metrics of classification and regression, from scikit-learn and scipy; shares are printed as percentages."""

import warnings
from collections.abc import Callable, Sequence

import numpy as np

from finetune.feature_spec import Features
from finetune.task import Outputs, Results, Scorer

CLASSIFICATION_METRICS = ("accuracy", "mcc", "precision", "recall", "f1")
MULTI_LABEL_METRICS = ("accuracy", "precision", "recall", "f1")
REGRESSION_METRICS = ("pearson", "spearman", "mse")


class ClassificationScorer(Scorer):
    """Metrics of classes, by name, and the mean loss.

    precision, recall and f1 are those of class 1 where there are two classes, the mean over the classes (macro) where
    there are more, and over all single decisions (micro) where an example may have several labels. The accuracy of
    several labels counts examples without any mistake.

    Args:
      task: whose features are scored.
      metrics: names, in the order in which they are printed.
      n_labels: how many classes there are.
      multi_label: whether an example may have several.
    """

    def __init__(self, task: str, metrics: Sequence[str], n_labels: int, multi_label: bool = False):
        self.feature, self.metrics = f"{task}_label_ids", metrics
        self.average = "micro" if multi_label else "binary" if n_labels == 2 else "macro"
        self.gold: list = []
        self.predicted: list = []
        self.losses: list[float] = []

    def update(self, features: Features, outputs: Outputs) -> None:
        self.gold.append(features[self.feature])
        self.predicted.append(outputs["predictions"])
        self.losses.append(float(outputs["loss"]))

    def results(self) -> Results:
        gold, predicted = np.asarray(self.gold), np.asarray(self.predicted)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one class alone: the answer, 0 or 100, says so
            results = {name: 100.0 * self._metric(name)(gold, predicted) for name in self.metrics}
        return {**results, "loss": float(np.mean(self.losses))}

    def _metric(self, name: str) -> Callable[[np.ndarray, np.ndarray], float]:
        from sklearn import metrics  # takes a second

        if name == "accuracy":
            return lambda gold, predicted: float(metrics.accuracy_score(gold, predicted))
        if name == "mcc":
            return lambda gold, predicted: float(metrics.matthews_corrcoef(gold, predicted))
        score = {"precision": metrics.precision_score, "recall": metrics.recall_score, "f1": metrics.f1_score}[name]
        return lambda gold, predicted: float(score(gold, predicted, average=self.average, zero_division=0.0))


class RegressionScorer(Scorer):
    """Correlations and the mean squared error (of targets between 0 and 1), and the mean loss.

    A correlation with constant values is NaN.
    """

    def __init__(self, task: str, metrics: Sequence[str] = REGRESSION_METRICS):
        self.feature, self.metrics = f"{task}_targets", metrics
        self.gold: list[float] = []
        self.predicted: list[float] = []
        self.losses: list[float] = []

    def update(self, features: Features, outputs: Outputs) -> None:
        self.gold.append(float(features[self.feature]))
        self.predicted.append(float(outputs["predictions"]))
        self.losses.append(float(outputs["loss"]))

    def results(self) -> Results:
        gold, predicted = np.asarray(self.gold), np.asarray(self.predicted)
        scores = {"pearson": _pearson, "spearman": _spearman, "mse": _mse}
        results = {name: scores[name](gold, predicted) for name in self.metrics}
        return {**results, "loss": float(np.mean(self.losses))}


def _correlation(function: Callable, gold: np.ndarray, predicted: np.ndarray) -> float:
    if len(gold) < 2:
        return float("nan")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # constant values: the answer, NaN, says so
        return 100.0 * float(function(gold, predicted).statistic)


def _pearson(gold: np.ndarray, predicted: np.ndarray) -> float:
    from scipy import stats

    return _correlation(stats.pearsonr, gold, predicted)


def _spearman(gold: np.ndarray, predicted: np.ndarray) -> float:
    from scipy import stats

    return _correlation(stats.spearmanr, gold, predicted)


def _mse(gold: np.ndarray, predicted: np.ndarray) -> float:
    return float(np.mean((gold - predicted) ** 2))
