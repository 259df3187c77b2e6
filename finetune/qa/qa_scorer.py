"""Figures of a split's answers, and the files that hold them."""

from configure_finetuning import FinetuningConfig
from finetune.feature_spec import Features
from finetune.qa import qa_metrics
from finetune.qa.answers import AnswerCollector
from finetune.task import Outputs, Results, Scorer
from util.files import write_json, writing


class QAScorer(Scorer):
    """Metrics of one split's answers by the official rules.

    Args:
      name: of the task.
      config: the hparams.
      unanswerable: some questions have no answer, as in SQuAD 2.0.
      collector: of the split's answers.
    """

    def __init__(self, name: str, config: FinetuningConfig, unanswerable: bool, collector: AnswerCollector):
        self.name, self.config, self.unanswerable, self.collector = name, config, unanswerable, collector
        self.losses: list[float] = []
        self._answers: tuple[dict[str, str], dict[str, float]] | None = None

    def update(self, features: Features, outputs: Outputs) -> None:
        """Takes one window."""
        self.collector.update(int(features[f"{self.name}_eid"]), outputs)
        self.losses.append(float(outputs["loss"]))
        self._answers = None

    def answers(self) -> tuple[dict[str, str], dict[str, float]]:
        """Answers and null odds by the questions' ids."""
        if self._answers is None:
            self._answers = answers_by_id(self.collector)
        return self._answers

    def evaluation(self) -> dict[str, float]:
        """The official figures, in the order in which the official script gives them."""
        answers, null_odds = self.answers()
        golds = {example.id: example.golds for example in self.collector.examples}
        if self.unanswerable:
            return qa_metrics.unanswerable_metrics(answers, null_odds, golds, self.config.qa_na_threshold)
        return qa_metrics.answer_metrics(answers, golds)

    def results(self) -> Results:
        """The official figures by name, and the mean of the windows' losses (as released, of start = end = 0)."""
        return dict(sorted(self.evaluation().items())) | {"loss": sum(self.losses) / max(1, len(self.losses))}

    def write(self, config: FinetuningConfig) -> list[str]:
        """Writes the answers, and for tasks like SQuAD 2.0 null odds and figures."""
        answers, null_odds = self.answers()
        contents = {"preds": answers}
        if self.unanswerable:
            contents |= {"na": null_odds, "eval": self.evaluation()}
        paths = {kind: config.qa_path(kind, self.name) for kind in contents}
        for kind, path in paths.items():
            with writing(path):
                write_json(path, contents[kind])
        return list(paths.values())


def answers_by_id(collector: AnswerCollector) -> tuple[dict[str, str], dict[str, float]]:
    """Answers, and null odds where there are any, by the questions' ids."""
    answers, null_odds = {}, {}
    for example, prediction in collector.predictions():
        answers[example.id] = prediction.text
        if prediction.null_odds is not None:
            null_odds[example.id] = prediction.null_odds
    return answers, null_odds
