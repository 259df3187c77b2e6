"""The tasks of GLUE: where their files have what, as released."""

from typing import NamedTuple

from configure_finetuning import FinetuningConfig
from finetune.classification.classification_tasks import ClassificationTask, Columns, RegressionTask
from model.tokenization import FullTokenizer

BINARY = ("0", "1")
ENTAILMENT = ("entailment", "not_entailment")
NLI = ("contradiction", "entailment", "neutral")


class Glue(NamedTuple):
    """A task with training, dev and test files of its own.

    Attributes:
      columns: of the training and dev files.
      test_columns: of the test file.
      glue_file: the name of its predictions for GLUE's server.
    """

    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    columns: Columns
    test_columns: Columns
    glue_file: str
    both_orders: bool = False


CLASSIFICATION = {
    "cola": Glue(BINARY, ("mcc",), Columns(3, None, 1, header=False), Columns(1), "CoLA.tsv"),
    "sst": Glue(BINARY, ("accuracy",), Columns(0, None, 1), Columns(1), "SST-2.tsv"),
    "mrpc": Glue(BINARY, ("accuracy", "f1"), Columns(3, 4, 0), Columns(3, 4), "MRPC.tsv", both_orders=True),
    "qqp": Glue(BINARY, ("accuracy", "f1"), Columns(3, 4, 5), Columns(1, 2), "QQP.tsv"),
    "qnli": Glue(ENTAILMENT, ("accuracy",), Columns(1, 2, 3), Columns(1, 2), "QNLI.tsv"),
    "rte": Glue(ENTAILMENT, ("accuracy",), Columns(1, 2, 3), Columns(1, 2), "RTE.tsv"),
    "wnli": Glue(BINARY, ("accuracy",), Columns(1, 2, 3), Columns(1, 2), "WNLI.tsv"),
}


class GlueTask(ClassificationTask):
    """A classification task of `CLASSIFICATION`."""

    def __init__(self, config: FinetuningConfig, name: str, tokenizer: FullTokenizer):
        self.glue = CLASSIFICATION[name]
        super().__init__(config, name, tokenizer, self.glue.labels, self.glue.metrics)
        self.both_orders = self.glue.both_orders
        self.glue_file = {"test": self.glue.glue_file}

    def columns(self, split: str) -> Columns:
        return self.glue.test_columns if split == "test" else self.glue.columns


class MNLI(ClassificationTask):
    """Natural language inference on several genres; the diagnostic set beside it has no labels."""

    evaluation_splits = ("dev", "dev_mismatched")
    test_splits = ("test_matched", "test_mismatched", "diagnostic")
    glue_file = {"test_matched": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv", "diagnostic": "AX.tsv"}

    def __init__(self, config: FinetuningConfig, name: str, tokenizer: FullTokenizer):
        super().__init__(config, name, tokenizer, NLI)

    def file_names(self) -> dict[str, str]:
        return {**super().file_names(), "dev": "dev_matched.tsv"}

    def columns(self, split: str) -> Columns:
        if split == "diagnostic":
            return Columns(1, 2)
        return Columns(8, 9, None if split in self.test_splits else -1)


class AX(ClassificationTask):
    """GLUE's diagnostic set: nothing to train on; predicted by the head of a model that was fine-tuned on MNLI."""

    evaluation_splits = ()
    test_splits = ("test",)
    glue_file = {"test": "AX.tsv"}
    head_name = "mnli"

    def __init__(self, config: FinetuningConfig, name: str, tokenizer: FullTokenizer):
        super().__init__(config, name, tokenizer, NLI)

    def file_names(self) -> dict[str, str]:
        return {"test": "diagnostic.tsv"}

    def columns(self, split: str) -> Columns:
        return Columns(1, 2)


class STS(RegressionTask):
    """Similarity of sentences, from 0 to 5."""

    both_orders = True
    glue_file = {"test": "STS-B.tsv"}

    def __init__(self, config: FinetuningConfig, name: str, tokenizer: FullTokenizer):
        super().__init__(config, name, tokenizer, 0.0, 5.0)

    def columns(self, split: str) -> Columns:
        return Columns(-2, -1) if split == "test" else Columns(-3, -2, -1)


GLUE_TASKS = {**dict.fromkeys(CLASSIFICATION, GlueTask), "mnli": MNLI, "ax": AX, "sts": STS}
