"""Metrics of pre-training as sums that add up over devices, micro-batches and steps."""

import numpy as np
import tensorflow as tf

from pretrain.masking import Masked

Sums = dict[str, tf.Tensor]  # float32 scalars, and [201] histograms

AUC_THRESHOLDS = np.concatenate([[-1e-7], np.arange(1, 199) / 199, [1 + 1e-7]]).astype(np.float32)  # as released


HISTOGRAM = (len(AUC_THRESHOLDS) + 1,)
MASKED_LM_SHAPES = {"loss": (), "tokens": (), **{f"masked_lm/{name}": () for name in ("weight", "nll", "correct")}}
SAMPLED_SHAPES = {"sampled/correct": ()}
TOKEN_SHAPES = {f"token/{name}": () for name in ("weight", "nll", "correct")}
REWARD_SHAPES = {"reward/reward": (), "reward/baseline": ()}
DISCRIMINATOR_SHAPES = {
    "disc/replaced": HISTOGRAM,
    "disc/original": HISTOGRAM,
    **{f"disc/{name}": () for name in ("examples", "example_bce", "correct", "true_positives", "positives")},
}


def masked_lm_sums(logits: tf.Tensor, nll: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor) -> Sums:
    """Sums over the masked positions: `logits` [B, K, V], `nll`, `targets` and `weights` [B, K]."""
    guessed = tf.argmax(logits, -1, output_type=tf.int32)
    return {
        "masked_lm/weight": tf.reduce_sum(weights),
        "masked_lm/nll": tf.reduce_sum(nll * weights),
        "masked_lm/correct": tf.reduce_sum(tf.cast(guessed == targets, tf.float32) * weights),
    }


def sampled_sums(sampled: tf.Tensor, batch: Masked) -> Sums:
    """How many of the samples [B, K] are the tokens that stood there."""
    hit = tf.cast(sampled == batch.target_ids, tf.float32) * batch.weights
    return {"sampled/correct": tf.reduce_sum(hit)}


def token_sums(right: tf.Tensor, nll: tf.Tensor, weights: tf.Tensor) -> Sums:
    """Sums over the tokens that the main network predicts: all arguments [B, K] or [B, L]."""
    return {
        "token/weight": tf.reduce_sum(weights),
        "token/nll": tf.reduce_sum(nll * weights),
        "token/correct": tf.reduce_sum(tf.cast(right, tf.float32) * weights),
    }


def reward_sums(reward: tf.Tensor, baseline: tf.Tensor, weights: tf.Tensor) -> Sums:
    """Sums over the masked positions: all arguments [B, K]."""
    return {
        "reward/reward": tf.reduce_sum(reward * weights),
        "reward/baseline": tf.reduce_sum(baseline * weights),
    }


def discriminator_sums(logits: tf.Tensor, bce: tf.Tensor, labels: tf.Tensor, mask: tf.Tensor) -> Sums:
    """Sums over some tokens (`mask`): all arguments [B, L] float32, labels 1 for replaced tokens."""
    guessed = tf.cast(logits > 0, tf.float32)
    length = tf.reduce_sum(mask, -1)
    bins = tf.searchsorted(tf.constant(AUC_THRESHOLDS), tf.reshape(tf.sigmoid(logits), [-1]), side="left")

    def histogram(weights):
        return tf.math.unsorted_segment_sum(tf.reshape(weights, [-1]), bins, HISTOGRAM[0])

    return {
        "disc/examples": tf.reduce_sum(tf.cast(length > 0, tf.float32)),
        "disc/example_bce": tf.reduce_sum(tf.reduce_sum(bce * mask, -1) / (length + 1e-6)),
        "disc/correct": tf.reduce_sum(tf.cast(guessed == labels, tf.float32) * mask),
        "disc/replaced": histogram(labels * mask),
        "disc/original": histogram((1 - labels) * mask),
        "disc/true_positives": tf.reduce_sum(guessed * labels * mask),
        "disc/positives": tf.reduce_sum(guessed * mask),
    }


def results(sums: dict[str, np.ndarray], batches: int) -> dict[str, float]:
    """The metrics by their released names from sums over `batches` global batches."""
    values = {"loss": float(sums["loss"]) / max(1, batches)}
    masked = max(float(sums["masked_lm/weight"]), 1e-6)
    values["masked_lm_loss"] = float(sums["masked_lm/nll"]) / masked
    values["masked_lm_accuracy"] = float(sums["masked_lm/correct"]) / masked
    if "sampled/correct" in sums:
        values["sampled_masked_lm_accuracy"] = float(sums["sampled/correct"]) / masked
    if "token/weight" in sums:
        tokens = max(float(sums["token/weight"]), 1e-6)
        values["token_loss"] = float(sums["token/nll"]) / tokens
        values["token_accuracy"] = float(sums["token/correct"]) / tokens
    if "reward/reward" in sums:
        values["reward"] = float(sums["reward/reward"]) / masked
        values["baseline"] = float(sums["reward/baseline"]) / masked
    if "disc/correct" in sums:
        replaced, original = np.asarray(sums["disc/replaced"]), np.asarray(sums["disc/original"])
        tokens = max(float(replaced.sum() + original.sum()), 1e-6)
        values["disc_loss"] = float(sums["disc/example_bce"]) / max(float(sums["disc/examples"]), 1e-6)
        values["disc_accuracy"] = float(sums["disc/correct"]) / tokens
        values["disc_auc"] = auc(replaced, original)
        values["disc_precision"] = _ratio(sums["disc/true_positives"], sums["disc/positives"])
        values["disc_recall"] = _ratio(sums["disc/true_positives"], replaced.sum())
    return values


def auc(positives: np.ndarray, negatives: np.ndarray) -> float:
    """Area under the ROC curve from histograms [201] over 200 thresholds, by the trapezoidal rule; 0 if undefined."""
    true = np.cumsum(positives[::-1].astype(np.float64))[::-1][1:]  # above threshold i
    false = np.cumsum(negatives[::-1].astype(np.float64))[::-1][1:]
    true_rate, false_rate = _ratio(true, positives.sum()), _ratio(false, negatives.sum())
    return float(np.sum((true_rate[:-1] + true_rate[1:]) / 2 * (false_rate[:-1] - false_rate[1:])))


def _ratio(part, whole):
    return part / max(float(whole), 1e-6) if np.ndim(part) else float(part) / max(float(whole), 1e-6)
