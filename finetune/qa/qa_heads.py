"""Question answering: start, end given the start, and whether there is an answer (ELECTRA, section 3.1 and appendix B).

Shapes: B batch, L length, D hidden, S beam (starts that are tried), F hidden units of the end's layer.
"""

import math

import tensorflow as tf

from configure_finetuning import FinetuningConfig
from finetune.heads import HeadOutput, cross_entropy
from model.modeling import Dense, EncoderOutput, Initializer, NamedLayer, gelu

HIDDEN = 512  # F
OUTSIDE = -1000.0  # added to the logits of positions that are no part of the text


class QAHead(NamedLayer):
    """Where the answer starts and ends.

    The layers are called as in released checkpoints: `dense` gives the start; `qa_hidden` and `dense_1` the end given
    the start, or `dense_1` alone the end; `dense_2` and `dense_3` (`dense_2` alone without the start) whether the
    question has no answer in the text.

    Args:
      config: joint_prediction, beam_size and the answerable_* hparams are used.
      has_unanswerable: there are questions without an answer, as in SQuAD 2.0.
    """

    def __init__(
        self,
        task_name: str,
        hidden_size: int,
        config: FinetuningConfig,
        has_unanswerable: bool,
        init: Initializer,
    ):
        super().__init__(task_name, init)
        self.task_name, self.config = task_name, config
        self.start = Dense("dense", hidden_size, 1, init)
        self.qa_hidden = Dense("qa_hidden", 2 * hidden_size, HIDDEN, init) if config.joint_prediction else None
        self.end = Dense("dense_1", HIDDEN if config.joint_prediction else hidden_size, 1, init)
        self.answerable_hidden = self.answerable = None
        if has_unanswerable and config.answerable_classifier and config.answerable_uses_start_logits:
            self.answerable_hidden = Dense("dense_2", 2 * hidden_size, HIDDEN, init)
            self.answerable = Dense("dense_3", HIDDEN, 1, init)
        elif has_unanswerable and config.answerable_classifier:
            self.answerable = Dense("dense_2", hidden_size, 1, init)

    def call(self, output: EncoderOutput, features: dict[str, tf.Tensor], keys=None) -> HeadOutput:
        """(start + end) / 2 + answerable_weight times the binary cross-entropy of "impossible"; no dropout.

        While training (`keys` is not None) the end is predicted given the true start; otherwise given each of the
        beam's starts, and the end's loss is that of a uniform guess over max_seq_length places, as released.
        """
        hidden = tf.cast(output.sequence, tf.float32)  # [B, L, D]
        starts, ends, impossible = (
            features[f"{self.task_name}_{name}"] for name in ("start_positions", "end_positions", "is_impossible")
        )
        outside = OUTSIDE * (1.0 - _answer_mask(features))  # [B, L]
        start_logits = tf.squeeze(self.start(hidden), -1) + outside
        outputs = {"start_logits": start_logits}
        if not self.config.joint_prediction:
            outputs["end_logits"] = tf.squeeze(self.end(hidden), -1) + outside
        elif keys is not None:
            given = tf.gather(hidden, starts[:, None], batch_dims=1)
            outputs["end_logits"] = self.end_logits(hidden, given)[:, 0] + outside
        else:
            outputs |= self.beam(hidden, start_logits, outside)
        if "end_logits" in outputs:
            end_losses = cross_entropy(ends, outputs["end_logits"])
        else:
            end_losses = math.log(self.config.max_seq_length)
        losses = (cross_entropy(starts, start_logits) + end_losses) / 2.0
        outputs["answerable_logit"] = tf.zeros_like(losses)
        if self.answerable:
            logit = outputs["answerable_logit"] = self.impossible_logit(hidden, start_logits)
            bce = tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(impossible, tf.float32), logit)
            losses += self.config.answerable_weight * bce
        return HeadOutput(losses, outputs)

    def end_logits(self, hidden: tf.Tensor, start_features: tf.Tensor) -> tf.Tensor:
        """Logits of every end given each start: hidden [B, L, D] and start features [B, S, D] to [B, S, L].

        The layer over [start, token] is a sum of one over the start and one over the token, so that nothing is tiled;
        one start after the other, so that no more than [B, L, F] is held.
        """
        kernel_start, kernel_token = tf.split(self.qa_hidden.kernel, 2)
        of_start = tf.einsum("bsd,df->sbf", start_features, kernel_start)  # [S, B, F]
        of_token = tf.einsum("bld,df->blf", hidden, kernel_token) + self.qa_hidden.bias  # [B, L, F]

        def ends_given(start):
            return tf.squeeze(self.end(gelu(of_token + start[:, None])), -1)  # [B, L]

        if start_features.shape[1] == 1:
            return ends_given(of_start[0])[:, None]
        logits = tf.map_fn(ends_given, of_start, fn_output_signature=tf.float32)  # [S, B, L]
        return tf.transpose(logits, [1, 0, 2])

    def beam(self, hidden: tf.Tensor, start_logits: tf.Tensor, outside: tf.Tensor) -> dict[str, tf.Tensor]:
        """The best starts, and the best ends given each: log-probabilities and positions, [B, S] and [B, S, S]."""
        size = tf.minimum(self.config.beam_size, tf.shape(hidden)[1])
        start_log_probs, start_index = tf.nn.top_k(tf.nn.log_softmax(start_logits), size)
        end_logits = self.end_logits(hidden, tf.gather(hidden, start_index, batch_dims=1)) + outside[:, None]
        end_log_probs, end_index = tf.nn.top_k(tf.nn.log_softmax(end_logits), size)
        return {
            "start_top_log_probs": start_log_probs,
            "start_top_index": start_index,
            "end_top_log_probs": end_log_probs,
            "end_top_index": end_index,
        }

    def impossible_logit(self, hidden: tf.Tensor, start_logits: tf.Tensor) -> tf.Tensor:
        """[B], from [CLS] and the start's expected hidden state."""
        x = hidden[:, 0]
        if self.answerable_hidden:
            expected = tf.einsum("bl,bld->bd", tf.nn.softmax(start_logits), hidden)
            x = gelu(self.answerable_hidden(tf.concat([x, expected], -1)))
        return tf.squeeze(self.answerable(x), -1)


def _answer_mask(features: dict[str, tf.Tensor]) -> tf.Tensor:
    """[B, L], 1 at the second segment and at [CLS], where an answer may lie."""
    mask = tf.cast(features["input_mask"] * features["segment_ids"], tf.float32)
    return mask + tf.one_hot(0, tf.shape(mask)[1])
