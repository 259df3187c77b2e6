"""Tags to spans and back: BIO, IOB1, BIOES."""

from collections.abc import Iterable, Sequence

SCHEMES = ("bio", "iob1", "bioes", "plain")  # plain: tags that are no spans
Span = tuple[int, int, str]  # first word, last word, class

_PREFIXES = {"bio": "BI", "iob1": "BI", "bioes": "BIES"}


def is_tag(tag: str, scheme: str) -> bool:
    """Whether a scheme has such tags. A class may hold hyphens; nothing may hold white space."""
    if not tag or tag.split() != [tag]:
        return False
    if scheme == "plain" or tag == "O":
        return True
    prefix, hyphen, name = tag.partition("-")
    return len(prefix) == 1 and prefix in _PREFIXES[scheme] and bool(hyphen and name)


def spans_of(tags: Sequence[str], scheme: str = "bioes") -> list[Span]:
    """The spans that tags stand for.

    B and S begin a span, and so does any tag after O; any other tag continues it, even with another class, and the span
    has the class of its last tag (as released). In IOB1 another class begins a span.
    """
    spans: list[Span] = []
    start, name = None, ""
    for i, tag in enumerate(tags):
        prefix, _, here = tag.partition("-")
        begins = prefix in ("B", "S", "O") or (scheme == "iob1" and here != name)
        if start is not None and begins:
            spans.append((start, i - 1, name))
            start = None
        if tag != "O":
            start = i if start is None else start
            name = here
    if start is not None:
        spans.append((start, len(tags) - 1, name))
    return spans


def tags_of(spans: Iterable[Span], length: int, scheme: str = "bioes") -> list[str]:
    """The tags of a sentence of `length` words with these spans, none of which overlap."""
    tags = ["O"] * length
    last_end, last_name = -2, ""
    for start, end, name in spans:
        tags[start : end + 1] = [f"I-{name}"] * (end + 1 - start)
        if scheme != "iob1" or (start == last_end + 1 and name == last_name):
            tags[start] = f"B-{name}"
        if scheme == "bioes":
            tags[end] = f"S-{name}" if start == end else f"E-{name}"
        last_end, last_name = end, name
    return tags
