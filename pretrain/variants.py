"""The papers' variants by name, and what the released booleans say of them. Needs no TensorFlow."""

from typing import Any

from util.errors import UserError

# objective: (electra_objective, electric_objective), the released booleans that go with it
OBJECTIVES = {
    "electra": (True, False),
    "mlm": (False, False),
    "electric": (False, True),
    "electra_masked_only": (True, False),
    "replace_mlm": (False, False),
    "all_tokens_mlm": (False, False),
    "two_stage": (True, False),
    "adversarial": (True, False),
}
TOKEN_OBJECTIVES = ("replace_mlm", "all_tokens_mlm")  # the main network predicts tokens, not replacements
GENERATORS = ("small", "tied", "uniform", "unigram", "two_tower")
WITHOUT_WEIGHTS = ("uniform", "unigram")
SHARINGS = ("none", "embeddings", "all", "gdes")
MASKING_UNITS = ("token", "whole_word", "span")


def resolve(passed: dict[str, Any]) -> dict[str, Any]:
    """The variant that passed hparams name, with the released booleans that say the same.

    Args:
      passed: hparams by name, of the right types.

    Returns:
      objective, generator (None: there is none), weight_sharing (None: nothing to share), and the booleans.

    Raises:
      UserError: an unknown name, or hparams that contradict each other.
    """
    for name, choices in (("objective", OBJECTIVES), ("generator", GENERATORS), ("weight_sharing", SHARINGS)):
        if passed.get(name) not in (None, *choices):
            raise UserError(f'hparam "{name}" must be one of {", ".join(choices)}; got "{passed[name]}"')
    objective = _objective(passed)
    generator = _generator(passed, objective)
    sharing = _sharing(passed, objective, generator)
    electra, electric = OBJECTIVES[objective]
    values = {"objective": objective, "generator": generator, "weight_sharing": sharing}
    values |= {"electra_objective": electra, "electric_objective": electric}
    if generator:
        values |= _generator_booleans(generator)
    if sharing:
        values |= {"untied_generator_embeddings": sharing == "none"}
    return values


def _generator_booleans(generator: str) -> dict[str, bool]:
    return {
        "uniform_generator": generator == "uniform",
        "two_tower_generator": generator == "two_tower",
        "untied_generator": generator != "tied",
    }


def _objective(passed: dict[str, Any]) -> str:
    named = passed.get("objective")
    electra, electric = passed.get("electra_objective"), passed.get("electric_objective")
    if named:
        booleans = dict(zip(("electra_objective", "electric_objective"), OBJECTIVES[named]))
        _agree(passed, "objective", named, booleans)
        return named
    if electra and electric:
        raise UserError("electra_objective true contradicts electric_objective true; set one of them to false")
    return "electric" if electric else "mlm" if electra is False else "electra"


def _generator(passed: dict[str, Any], objective: str) -> str | None:
    named = passed.get("generator")
    if objective == "mlm":
        if named:
            raise UserError(f'objective "mlm" has no generator, generator "{named}" contradicts it; leave it out')
        return None
    booleans = (("uniform", "uniform_generator", True), ("two_tower", "two_tower_generator", True),
                ("tied", "untied_generator", False), ("tied", "weight_sharing", "all"))  # fmt: skip
    by = {kind: f"{name} {str(value).lower()}" for kind, name, value in booleans if passed.get(name) == value}
    said = list(by)
    if objective == "electric":
        if other := next((kind for kind in (named, *said) if kind not in (None, "two_tower")), None):
            raise UserError(f'objective "electric" needs generator "two_tower"; the hparams say "{other}"')
        return "two_tower"
    if named:
        _agree(passed, "generator", named, _generator_booleans(named))
        return named
    if "two_tower" in said and len(said) > 1:
        raise UserError(f"{' contradicts '.join(by.values())}; choose one")
    return said[0] if said else "small"


def _sharing(passed: dict[str, Any], objective: str, generator: str | None) -> str | None:
    named, own = passed.get("weight_sharing"), passed.get("untied_generator_embeddings")
    if generator is None or generator in WITHOUT_WEIGHTS:
        if named:
            raise UserError(f'weight_sharing "{named}" needs a generator with weights (small, tied, two_tower)')
        return None
    if objective == "two_stage":
        if own is False or named not in (None, "none"):
            raise UserError(
                'objective "two_stage" freezes the generator while the discriminator goes on, so they share nothing: '
                'weight_sharing is "none" and untied_generator_embeddings true; leave them out'
            )
        return "none"
    if generator == "tied":
        if own or named not in (None, "all"):
            raise UserError(
                'generator "tied" (untied_generator false) shares all weights, '
                + ("untied_generator_embeddings true" if own else f'weight_sharing "{named}"')
                + " does not; choose one"
            )
        return "all"
    if named in ("all", "gdes") and (named == "all" or generator != "small"):
        wanted = "tied" if named == "all" else "small"
        raise UserError(f'weight_sharing "{named}" needs generator "{wanted}"; got "{generator}"')
    if named:
        _agree(passed, "weight_sharing", named, {"untied_generator_embeddings": named == "none"})
    return named or ("none" if own else "embeddings")


def _agree(passed: dict[str, Any], name: str, value: str, booleans: dict[str, bool]) -> None:
    for boolean, implied in booleans.items():
        if passed.get(boolean) not in (None, implied):
            written, wanted = (str(x).lower() for x in (passed[boolean], implied))
            raise UserError(
                f'{name} "{value}" contradicts {boolean} {written}; leave {boolean} out or set it to {wanted}'
            )
