"""Fine-tuned heads as Hugging Face models have them, and back.

A head here is one dense layer on the encoder's output; so are those of ElectraForTokenClassification and
ElectraForQuestionAnswering (start and end, each on its own). ElectraForSequenceClassification has a second layer and a
gelu between; since gelu(z) - gelu(-z) = z, its first layer can hold z = x W + b and -z, and its second one take the
difference: the same logits, up to rounding.
"""

from collections.abc import Iterable
from typing import Protocol

import numpy as np

from util.errors import UserError

ARCHITECTURES = {
    "classification": "ElectraForSequenceClassification",
    "regression": "ElectraForSequenceClassification",
    "tagging": "ElectraForTokenClassification",
    "qa": "ElectraForQuestionAnswering",
}
KNOWN_TASKS = {  # the released tasks by kind; "dense" alone does not tell tagging from classification
    **dict.fromkeys(("cola", "sst", "mrpc", "qqp", "mnli", "qnli", "rte", "wnli", "ax"), "classification"),
    "sts": "regression",
    "chunk": "tagging",
    **dict.fromkeys(("squad", "squadv1", "newsqa", "naturalqs", "triviaqa", "searchqa"), "qa"),
}
LABELS = {
    "mnli": ("contradiction", "entailment", "neutral"),
    "qnli": ("entailment", "not_entailment"),
    "rte": ("entailment", "not_entailment"),
}


class Present(Protocol):
    """Tensors by name."""

    def __contains__(self, name: str) -> bool: ...

    def __getitem__(self, name: str) -> np.ndarray: ...


def tasks(names: Iterable[str]) -> list[str]:
    """The tasks whose heads are among released names."""
    return sorted({name.split("/")[1] for name in names if name.startswith("task_specific/")})


def to_hugging_face(task: str, kind: str, head: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A head's tensors under their Hugging Face names.

    Args:
      task: for messages.
      kind: a key of `ARCHITECTURES`.
      head: the task's tensors by their names below task_specific/<task>/.

    Raises:
      UserError: Hugging Face has no head of this shape.
    """
    if kind == "qa":
        if any(name.startswith("qa_hidden/") for name in head) or "dense_1/kernel" not in head:
            raise UserError(
                f"the head of {task} predicts the end from the start (joint_prediction true), which no Hugging Face "
                "model does; export the encoder alone (--part discriminator), or fine-tune with joint_prediction false"
            )
        both = [np.concatenate([head[f"dense/{x}"], head[f"dense_1/{x}"]], -1) for x in ("kernel", "bias")]
        return {"qa_outputs.weight": both[0].T, "qa_outputs.bias": both[1]}
    if set(head) != {"dense/kernel", "dense/bias"}:
        raise UserError(
            f"the head of {task} is not one dense layer, as a {kind} head is; it has {', '.join(sorted(head))}"
        )
    kernel, bias = head["dense/kernel"], head["dense/bias"]
    if kind == "tagging":
        return {"classifier.weight": kernel.T, "classifier.bias": bias}
    return _two_layers(task, kernel, bias)


def _two_layers(task: str, kernel: np.ndarray, bias: np.ndarray) -> dict[str, np.ndarray]:
    hidden, outputs = kernel.shape
    if 2 * outputs > hidden:
        raise UserError(
            f"the head of {task} has {outputs} outputs; a Hugging Face head has room for half the hidden size, "
            f"{hidden // 2}. Export the encoder alone: --part discriminator"
        )
    first, first_bias = np.zeros((hidden, hidden), np.float32), np.zeros(hidden, np.float32)
    first[:outputs], first[outputs : 2 * outputs] = kernel.T, -kernel.T
    first_bias[:outputs], first_bias[outputs : 2 * outputs] = bias, -bias
    return {
        "classifier.dense.weight": first,
        "classifier.dense.bias": first_bias,
        "classifier.out_proj.weight": _difference(outputs, hidden),
        "classifier.out_proj.bias": np.zeros(outputs, np.float32),
    }


def _difference(outputs: int, hidden: int) -> np.ndarray:
    second = np.zeros((outputs, hidden), np.float32)
    second[:, :outputs], second[:, outputs : 2 * outputs] = np.eye(outputs), -np.eye(outputs)
    return second


def from_hugging_face(present: Present, architecture: str) -> tuple[dict[str, np.ndarray], list[str]]:
    """A head that has a shape here, by its names below task_specific/<task>/, and the tensors that it was made of.

    Args:
      present: the model's tensors by their Hugging Face names.
      architecture: the name of the model's class.
    """
    if architecture.endswith("ForTokenClassification") and "classifier.weight" in present:
        taken = ["classifier.weight", "classifier.bias"]
        return {"dense/kernel": present[taken[0]].T, "dense/bias": present[taken[1]]}, taken
    if architecture.endswith("ForQuestionAnswering") and "qa_outputs.weight" in present:
        taken = ["qa_outputs.weight", "qa_outputs.bias"]
        weight, bias = present[taken[0]], present[taken[1]]
        start = {"dense/kernel": weight[:1].T, "dense/bias": bias[:1]}
        return {**start, "dense_1/kernel": weight[1:].T, "dense_1/bias": bias[1:]}, taken
    if "classifier.dense.weight" in present and "classifier.out_proj.weight" in present:
        return _one_layer(present)
    return {}, []


def _one_layer(present: Present) -> tuple[dict[str, np.ndarray], list[str]]:
    """Takes `_two_layers` back; any other pair of layers has no shape here."""
    taken = [f"classifier.{layer}.{leaf}" for layer in ("dense", "out_proj") for leaf in ("weight", "bias")]
    first, first_bias, second, second_bias = (present[name] for name in taken)
    outputs, hidden = second.shape
    kernel, bias = first[:outputs].T, first_bias[:outputs]
    if 2 * outputs > hidden or any(
        not np.array_equal(value, expected)
        for value, expected in zip(
            (first, first_bias, second, second_bias), _two_layers("", kernel, bias).values(), strict=True
        )
    ):
        return {}, []
    return {"dense/kernel": kernel, "dense/bias": bias}, taken
