"""Every objective against NumPy, and which variables get gradient from which loss."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import special, stats

from pretrain import adversarial
from pretrain.electric import log_noise
from pretrain.generators import Predictions, unigram
from pretrain.masking import candidates, sample
from pretrain.pretraining_model import PretrainingModel
from pretrain.token_objectives import log_mixture, most_likely
from tests.objectives import SPECIALS, VARIANTS, VOCAB, batch_of, config_of, gradients, inputs, keys, model_of, moved
from util.errors import UserError

CLOSE = {"rtol": 2e-5, "atol": 2e-6}


def parts(model, batch):
    """What an objective computes on the way: predictions, the corrupted text, the main network's states."""
    objective = model.objective
    predicted = objective.generator.predict(batch, training=False)
    corrupted = objective.corrupt(batch, objective.sample(predicted.logits, batch))
    return predicted, corrupted, objective.encode(batch, corrupted.input_ids, training=False)


def loss_and_results(model, batch):
    loss, sums = model.loss(batch, model.totals(batch), training=False)
    return float(loss), model.results({name: value.numpy() for name, value in sums.items()}, 1)


def masked_lm(model, batch, logits):
    """gen_weight times the mean negative log probability of the masked tokens."""
    log_p = special.log_softmax(np.asarray(logits, np.float64), -1)
    nll = -np.take_along_axis(log_p, batch.target_ids.numpy()[..., None], -1)[..., 0]
    weights = batch.weights.numpy()
    return model.config.gen_weight * np.sum(nll * weights) / weights.sum()


def bce(logits, labels):
    p = special.expit(np.asarray(logits, np.float64))
    return -(labels * np.log(p) + (1 - labels) * np.log(1 - p))


def token_log_p(model, states):
    """Log probabilities of all tokens at each of some states, from the main network's head."""
    table = model.objective.main.embeddings.word_embeddings
    return special.log_softmax(np.asarray(model.objective.head(states, table), np.float64), -1)


def test_masked_only():
    """L_Disc over the masked positions alone, as a mean over them."""
    model = model_of(VARIANTS["masked only"])
    batch = batch_of(model)
    predicted, corrupted, states = parts(model, batch)
    logits, ids, used = model.objective.head(states).numpy(), batch.input_ids.numpy(), batch.weights.numpy() > 0
    places = [(b, p) for b in range(len(ids)) for p in batch.positions.numpy()[b][used[b]]]
    labels = np.array([float(corrupted.input_ids.numpy()[place] != ids[place]) for place in places])
    expected = 3.0 * np.mean(bce([logits[place] for place in places], labels))
    loss, results = loss_and_results(model, batch)
    np.testing.assert_allclose(loss, expected + masked_lm(model, batch, predicted.logits), **CLOSE)
    right = np.mean([(logits[place] > 0) == label for place, label in zip(places, labels, strict=True)])
    np.testing.assert_allclose(results["disc_accuracy"], right, **CLOSE)


def test_replace_mlm():
    """The masked positions hold samples, and the main network predicts what stood there."""
    model = model_of(VARIANTS["replace"])
    batch = batch_of(model)
    predicted, corrupted, states = parts(model, batch)
    log_p, ids, nll, hits = token_log_p(model, states), batch.input_ids.numpy(), [], []
    for b, p in np.ndindex(*batch.positions.shape):
        if batch.weights.numpy()[b, p] > 0:
            place = batch.positions.numpy()[b, p]
            assert corrupted.input_ids.numpy()[b, place] == corrupted.sampled.numpy()[b, p]
            nll.append(-log_p[b, place, ids[b, place]])
            hits.append(np.argmax(log_p[b, place]) == ids[b, place])
    loss, results = loss_and_results(model, batch)
    np.testing.assert_allclose(loss, 3.0 * np.mean(nll) + masked_lm(model, batch, predicted.logits), **CLOSE)
    np.testing.assert_allclose([results["token_loss"], results["token_accuracy"]], [np.mean(nll), np.mean(hits)], 1e-5)


def test_all_tokens_mlm():
    """Every real token, by c 1[w = input] + (1 - c) softmax(w)."""
    model = model_of(VARIANTS["all tokens"])
    batch = batch_of(model)
    predicted, corrupted, states = parts(model, batch)
    log_p = token_log_p(model, states)
    gate = special.expit(states.numpy() @ model.variables["copy_gate/kernel"] + model.variables["copy_gate/bias"])
    p = (1 - gate) * np.exp(log_p)
    seen, ids, real = corrupted.input_ids.numpy(), batch.input_ids.numpy(), batch.input_mask.numpy() > 0
    p += gate * np.eye(VOCAB)[seen]
    np.testing.assert_allclose(p.sum(-1), 1, rtol=1e-5)
    nll = -np.log(np.take_along_axis(p, ids[..., None], -1)[..., 0][real])
    loss, results = loss_and_results(model, batch)
    np.testing.assert_allclose(loss, 3.0 * np.mean(nll) + masked_lm(model, batch, predicted.logits), **CLOSE)
    accuracy = np.mean((np.argmax(p, -1) == ids)[real])
    np.testing.assert_allclose([results["token_loss"], results["token_accuracy"]], [np.mean(nll), accuracy], rtol=1e-5)
    assert (seen != ids).any() and 0 < accuracy < 1


def test_the_mixture_at_its_extremes():
    """A gate that is sure copies or predicts without overflow; gradients stay finite."""
    logits, ids = tf.constant([[[0.0, 50.0, -50.0]] * 4]), tf.constant([[0, 1, 2, 2]])
    gate, seen = tf.constant([[-200.0, 200.0, 200.0, -200.0]]), tf.constant([[0, 1, 2, 0]])
    with tf.GradientTape() as tape:
        tape.watch([logits, gate])
        values = log_mixture(logits, gate, seen, ids)
    np.testing.assert_allclose(values, [[-50, 0, 0, -100]], rtol=1e-6)
    assert all(np.isfinite(gradient).all() for gradient in tape.gradient(values, [logits, gate]))
    assert most_likely(logits, gate, seen).numpy().tolist() == [[1, 1, 2, 1]]


def test_reinforce_and_its_baseline():
    """Gradients of the losses against the formulas, for every logit and every baseline."""
    draws = np.random.RandomState(3)
    logits, guess = draws.normal(size=(2, 3, 7)), draws.normal(size=(2, 3))
    sampled, reward = draws.randint(7, size=(2, 3)), draws.exponential(size=(2, 3))
    tensors = [tf.constant(x, tf.float32) for x in (logits, guess)]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        losses = adversarial.reinforce(tensors[0], tf.constant(sampled), tf.constant(reward, tf.float32), tensors[1])
    for_logits, for_guess = tape.gradient(losses, tensors)
    baseline = -np.log(special.expit(guess))
    ascent = (np.eye(7)[sampled] - special.softmax(logits, -1)) * (reward - baseline)[..., None]  # grad log p (R - b)
    np.testing.assert_allclose(for_logits, -ascent, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(for_guess, special.expit(guess) - np.exp(-reward), rtol=1e-4, atol=1e-6)


def test_adversarial_loss():
    """Rewards are the discriminator's losses about the samples; the whole loss from its parts."""
    model = model_of(VARIANTS["adversarial"])
    batch = batch_of(model)
    predicted, corrupted, states = parts(model, batch)
    verdict, labels = model.objective.head(states).numpy(), corrupted.labels.numpy()
    losses, real, used = bce(verdict, labels), batch.input_mask.numpy() > 0, batch.weights.numpy() > 0
    reward = np.take_along_axis(losses, batch.positions.numpy(), 1)
    guess = predicted.hidden.numpy() @ model.variables["baseline_predictions/kernel"].numpy()
    guess = guess[..., 0] + model.variables["baseline_predictions/bias"].numpy()
    log_p = special.log_softmax(predicted.logits.numpy().astype(np.float64), -1)
    nll = -np.take_along_axis(log_p, corrupted.sampled.numpy()[..., None], -1)[..., 0]
    of_generator = (reward + np.log(special.expit(guess))) * nll + bce(guess, np.exp(-reward))
    loss, results = loss_and_results(model, batch)
    np.testing.assert_allclose(loss, 2.0 * of_generator[used].mean() + 3.0 * losses[real].mean(), **CLOSE)
    np.testing.assert_allclose(results["reward"], reward[used].mean(), rtol=1e-5)
    np.testing.assert_allclose(results["baseline"], -np.log(special.expit(guess[used])).mean(), rtol=1e-5)


def test_electric_counts_equal_samples_as_replaced():
    """Labels, the noise's share of the logit, and the towers' loss over all that may be masked."""
    model = model_of(VARIANTS["electric"])
    batch, objective = batch_of(model), model.objective
    predicted = objective.generator.predict(batch, training=False)
    corrupted = objective.corrupt(batch, batch.target_ids)  # each sample is the original
    assert (corrupted.input_ids.numpy() == batch.input_ids.numpy()).all()
    used = batch.weights.numpy() > 0
    expected = np.zeros(batch.input_ids.shape)
    for row, positions in enumerate(batch.positions.numpy()):
        expected[row, positions[used[row]]] = 1
    assert (corrupted.labels.numpy() == expected).all() and expected.sum() == used.sum()
    log_q = special.log_softmax(predicted.cloze.numpy().astype(np.float64), -1)
    log_q = np.take_along_axis(log_q, corrupted.input_ids.numpy()[..., None], -1)[..., 0]
    energies = objective.head(objective.encode(batch, corrupted.input_ids, False)).numpy()
    logits = objective.discriminate(batch, corrupted, predicted, False)
    np.testing.assert_allclose(logits, energies + log_q + np.log(0.25 / 0.75), **CLOSE)
    np.testing.assert_allclose(log_noise(predicted.cloze, corrupted.input_ids), log_q, **CLOSE)
    log_p = special.log_softmax(predicted.cloze.numpy().astype(np.float64), -1)
    allowed = candidates(batch, SPECIALS).numpy()
    nll = -np.take_along_axis(log_p, batch.input_ids.numpy()[..., None], -1)[..., 0][allowed]
    loss = objective.generator_loss(predicted, batch, model.totals(batch))[0]
    np.testing.assert_allclose(loss, 2.0 * nll.mean(), **CLOSE)


def test_towers_see_all_but_the_token_itself():
    """A prediction does not change with its own token, and does with every other one between [CLS] and the end."""
    model = model_of(VARIANTS["electric"])
    batch = batch_of(model)
    before = model.objective.generator.predict(batch, training=False).cloze.numpy()[0]
    place = 6
    other = batch.input_ids.numpy().copy()
    other[0, place] = 5 + (other[0, place] - 4) % 40
    after = model.objective.generator.predict(batch._replace(input_ids=tf.constant(other)), False).cloze.numpy()[0]
    changed = np.abs(before - after).max(-1) > 1e-6
    assert changed.tolist() == [i != place for i in range(len(changed))]


def test_unigram_samples_follow_the_counts():
    counts = np.random.RandomState(0).zipf(1.5, VOCAB).clip(0, 500)
    counts[[0, 2, 3, 4, 17]] = 0
    logits = unigram(counts).predict(batch_of(model_of({})), training=False).logits[:1, :1]
    drawn = sample(tf.nn.softmax(tf.tile(logits, [20000, 1, 1])), keys(20000)).numpy().ravel()
    found = np.bincount(drawn, minlength=VOCAB)
    assert (found[counts == 0] == 0).all()
    assert stats.chisquare(found[counts > 0], counts[counts > 0] / counts.sum() * 20000).pvalue > 1e-4
    with pytest.raises(UserError, match="needs the tokens' frequencies"):
        unigram(None)
    with pytest.raises(UserError, match="needs the tokens' frequencies"):
        unigram(np.zeros(VOCAB))


def test_two_stages():
    """At the border, and only there, the main network is the generator, bit for bit; then the other one is frozen."""
    model = model_of(VARIANTS["two stages"])
    names = [name for name in model.variables if name.startswith("electra/")]

    def same():
        return {np.array_equal(model.variables[n], model.variables["generator" + n[7:]]) for n in names}

    for step, expected in ((0, False), (3, False), (5, False), (4, True)):
        model.begin(step)
        assert same() == {expected}
    frozen = model.frozen()
    assert {name.split("/")[0] for name in frozen} == {"generator", "generator_predictions"}
    batch = batch_of(model)
    ids = (batch.input_ids, batch.input_mask, batch.segment_ids)
    main, generator = model.objective.main, model.objective.generator.encoder
    np.testing.assert_array_equal(main(*ids).sequence, generator(*ids).sequence)
    model.begin(0)
    assert model.frozen() == set(model.variables) - frozen


# ---- gradients -----------------------------------------------------------------------------------------------------

MAIN = {"electra/encoder", "electra/embeddings_project"}
TABLES = {"electra/embeddings"}
GENERATOR = {"generator/encoder", "generator/embeddings_project", "generator_predictions"}
TOWERS = {f"{t}/{p}" for t in ("generator_ltr", "generator_rtl") for p in ("encoder", "embeddings_project")}
HEAD, TOKENS = {"discriminator_predictions"}, {"token_predictions"}
# (variant, step): what the generator's loss moves, what the main network's loss moves
FLOWS = {
    ("electra", 0): (GENERATOR | TABLES, MAIN | HEAD | TABLES),
    ("mlm", 0): (MAIN | TABLES | {"generator_predictions"}, set()),
    ("electric", 0): (TOWERS | {"cloze_predictions"} | TABLES, MAIN | HEAD | TABLES),
    ("electric, own tables", 0): (
        {"generator_ltr/encoder", "generator_rtl/encoder", "cloze_predictions"}
        | {"generator_ltr/embeddings", "generator_rtl/embeddings"},
        MAIN | HEAD | TABLES,
    ),
    ("masked only", 0): (GENERATOR | TABLES, MAIN | HEAD | TABLES),
    ("replace", 0): (GENERATOR | TABLES, MAIN | TOKENS | TABLES),
    ("all tokens", 0): (GENERATOR | TABLES, MAIN | TOKENS | TABLES | {"copy_gate"}),
    ("two stages", 0): (GENERATOR | {"generator/embeddings"}, set()),
    ("two stages", 5): (set(), MAIN | HEAD | TABLES),
    ("adversarial", 0): (GENERATOR | TABLES | {"baseline_predictions"}, MAIN | HEAD | TABLES),
    ("tied", 0): (MAIN | TABLES | {"generator_predictions"}, MAIN | HEAD | TABLES),
    ("uniform", 0): (set(), MAIN | HEAD | TABLES),
    ("unigram", 0): (set(), MAIN | HEAD | TABLES),
    ("towers", 0): (TOWERS | {"cloze_predictions"} | TABLES, MAIN | HEAD | TABLES),
    ("own tables", 0): ({"generator/encoder", "generator/embeddings", "generator_predictions"}, MAIN | HEAD | TABLES),
    ("gdes", 0): (GENERATOR | {"generator/embeddings"}, MAIN | HEAD | TABLES),
}


def groups(names) -> set[str]:
    return {"/".join(name.split("/")[: 2 if "/e" in name and "predictions" not in name else 1]) for name in names}


@pytest.mark.parametrize(("name", "step"), FLOWS, ids=lambda value: str(value))
def test_gradients_flow_where_they_should(name, step):
    """Each loss alone: the other one's weight is 0. Every variable that belongs to a loss gets some of it."""
    expected = FLOWS[name, step]
    for weights, wanted in (({"disc_weight": 0.0}, expected[0]), ({"gen_weight": 0.0}, expected[1])):
        model = model_of(VARIANTS[name], weights)
        model.begin(step)
        batch = batch_of(model)
        found = moved(gradients(model, lambda m=model, b=batch: m.loss(b, m.totals(b), training=True)[0]))
        assert groups(found) == wanted
        silent = {n for n in model.variables if groups([n]) <= wanted} - found
        # constant under softmax or layer norm, looked up nowhere, or (towers) the rolled-in end of the row
        assert all(n.endswith(("key/bias", "position_embeddings", "token_type_embeddings")) for n in silent), silent
    assert VARIANTS.keys() == {variant for variant, _ in FLOWS}


def test_the_difference_alone_moves_the_discriminators_table():
    """gdes: the table is generator's + difference, the discriminator moves the difference, the generator its own."""
    for weights, name in (({"disc_weight": 0.0}, "generator/embeddings/word_embeddings"),
                          ({"gen_weight": 0.0}, "electra/embeddings/word_embeddings_difference")):  # fmt: skip
        model = model_of(VARIANTS["gdes"], weights)
        batch = batch_of(model)
        found = moved(gradients(model, lambda m=model, b=batch: m.loss(b, m.totals(b), training=False)[0]))
        assert {n for n in found if "word_embeddings" in n} == {name}
    table = model.objective.main.embeddings.word_embeddings
    parts = (model.variables[f"{n}"] for n in ("generator/embeddings/word_embeddings",
                                               "electra/embeddings/word_embeddings_difference"))  # fmt: skip
    np.testing.assert_allclose(table, sum(part.numpy() for part in parts), rtol=1e-6)


def test_the_difference_starts_at_zero():
    model = PretrainingModel(config_of(VARIANTS["gdes"]), SPECIALS)
    assert not np.any(model.variables["electra/embeddings/word_embeddings_difference"])


def test_no_gradient_flows_through_the_samples():
    """The discriminator's loss does not change its gradient whatever the generator's logits are, given the samples."""
    model = model_of({})
    batch, objective = batch_of(model), model.objective
    logits = tf.Variable(objective.generator.predict(batch, training=False).logits)
    with tf.GradientTape() as tape:
        corrupted = objective.corrupt(batch, objective.sample(logits, batch))
        loss, _ = objective.main_loss(batch, corrupted, Predictions(logits), model.totals(batch), False)
    assert tape.gradient(loss, logits) is None


def test_inputs_are_as_announced():
    """The test's own batch: short rows, and pieces that go on with a word."""
    ids, real = inputs().input_ids.numpy(), inputs().input_mask.numpy()
    assert real.sum(1).tolist() == [16, 16, 9, 6] and (ids[real == 0] == 0).all() and (ids >= 50).any()
