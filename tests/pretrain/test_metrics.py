"""Metrics from sums against scikit-learn and plain numpy."""

import numpy as np
import pytest
import tensorflow as tf
from sklearn.metrics import accuracy_score, precision_score, recall_score, roc_auc_score

from pretrain import metrics


@pytest.fixture
def scored():
    random = np.random.RandomState(3)
    labels = (random.uniform(size=(40, 50)) < 0.2).astype(np.float32)
    logits = (random.normal(size=labels.shape) + 1.5 * labels - 0.7).astype(np.float32)
    mask = (np.arange(50) < random.randint(5, 51, size=(40, 1))).astype(np.float32)
    mask[-1] = 0  # a filler row
    return logits, labels, mask


def sums_of(logits, labels, mask) -> dict[str, np.ndarray]:
    bce = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
    return {name: value.numpy() for name, value in metrics.discriminator_sums(logits, bce, labels, mask).items()}


def test_discriminator_metrics(scored):
    logits, labels, mask = scored
    other = dict.fromkeys(metrics.MASKED_LM_SHAPES, np.float32(1))
    ours = metrics.results({**other, "sampled/correct": np.float32(0), **sums_of(logits, labels, mask)}, 1)
    real = mask > 0
    guessed = logits[real] > 0
    assert ours["disc_accuracy"] == pytest.approx(accuracy_score(labels[real], guessed), abs=1e-6)
    assert ours["disc_precision"] == pytest.approx(precision_score(labels[real], guessed), abs=1e-6)
    assert ours["disc_recall"] == pytest.approx(recall_score(labels[real], guessed), abs=1e-6)
    assert ours["disc_auc"] == pytest.approx(roc_auc_score(labels[real], logits[real]), abs=2e-3)  # 200 thresholds
    bce = np.logaddexp(0, logits) - labels * logits
    rows = [np.mean(row[kept]) for row, kept in zip(bce, real, strict=True) if kept.any()]
    assert ours["disc_loss"] == pytest.approx(np.mean(rows), rel=1e-5)


def test_auc_equals_the_keras_metric(scored):
    """tf.keras.metrics.AUC with 200 thresholds is the successor of the released code's metric."""
    logits, labels, mask = scored
    sums = sums_of(logits, labels, mask)
    reference = tf.keras.metrics.AUC(num_thresholds=200)
    reference.update_state(labels.ravel(), tf.sigmoid(logits.ravel()), sample_weight=mask.ravel())
    assert metrics.auc(sums["disc/replaced"], sums["disc/original"]) == pytest.approx(
        float(reference.result()), abs=1e-6
    )


def test_sums_of_parts_are_the_sums_of_the_whole(scored):
    logits, labels, mask = scored
    whole = sums_of(logits, labels, mask)
    parts = [sums_of(logits[i : i + 10], labels[i : i + 10], mask[i : i + 10]) for i in range(0, 40, 10)]
    for name in whole:
        np.testing.assert_allclose(sum(part[name] for part in parts), whole[name], rtol=1e-5)


def test_masked_lm_metrics():
    logits = np.random.RandomState(0).normal(size=(2, 3, 5)).astype(np.float32)
    targets = tf.constant(np.argmax(logits, -1) * [[1, 1, 0], [1, 1, 1]], tf.int32)
    weights = tf.constant([[1.0, 1, 0], [1, 0, 0]])
    nll = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)
    sums = metrics.masked_lm_sums(logits, nll, targets, weights)
    ours = metrics.results({"loss": 4.0, "tokens": 0, **{name: value.numpy() for name, value in sums.items()}}, 2)
    assert ours["loss"] == 2.0 and ours["masked_lm_accuracy"] == 1.0
    assert ours["masked_lm_loss"] == pytest.approx(float(np.mean([nll[0, 0], nll[0, 1], nll[1, 0]])), rel=1e-6)
