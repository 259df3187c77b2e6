"""Learning a vocabulary: what it holds, that it is the same each time, and what is said when something is wrong."""

import random
import shutil
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.tokenization import SPECIAL_TOKENS, UNK, load_vocab, word_pieces
from pretrain import parts, vocab_learning
from pretrain.parts import find_parts
from pretrain.vocab_learning import count_words, forget_rare, learn_vocabulary, pieces_a_word
from tests.builders import fails, files, run

SCRIPT = "build_vocab.py"
STEMS = "work play talk walk jump call help open move turn show look read sing paint build count learn".split()


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """English-like text: stems with endings, from frequent to rare, in several files."""
    folder = tmp_path_factory.mktemp("corpus")
    rng = random.Random(3)
    words = [prefix + stem + ending for prefix in ("", "re", "un", "over") for stem in STEMS for ending in
             ("", "s", "ed", "ing", "er", "ers", "able")]  # fmt: skip
    rng.shuffle(words)
    weights = [1 / (rank + 1) for rank in range(len(words))]
    for i in range(3):
        lines = (" ".join(rng.choices(words, weights, k=12)).capitalize() + ".\n" for _ in range(400))
        (folder / f"{i}.txt").write_text("".join(lines) + "Crème brûlée Ω " * 5 + "\n日本日本 ☃\n")
    return folder


@pytest.fixture
def output(tmp_path):
    return tmp_path / "vocab.txt"


@pytest.fixture
def args(corpus, output):
    return ["--corpus-dir", corpus, "--vocab-size", 200, "--output-file", output]


def test_special_pieces_come_first(args, output):
    result = run(SCRIPT, *args, "--num-unused", 3)
    assert result.returncode == 0, result.stderr
    tokens = load_vocab(str(output)).tokens
    assert len(tokens) == 200
    assert tokens[:8] == [*SPECIAL_TOKENS, "[unused0]", "[unused1]", "[unused2]"]
    assert tokens[0] == "[PAD]"
    assert {"creme"}.isdisjoint(tokens) and "日" in tokens and "##日" not in tokens
    assert "pieces a word" in result.stdout and "200" in result.stdout


def test_the_same_text_gives_the_same_vocabulary(args, output):
    contents = []
    for processes in (1, 1, 2, 5):
        assert run(SCRIPT, *args, "--overwrite", "--num-processes", processes).returncode == 0
        contents.append(output.read_bytes())
    assert len(set(contents)) == 1


def test_case_and_accents(args, output):
    assert run(SCRIPT, *args, "--no-lower-case").returncode == 0
    cased = set(load_vocab(str(output)).tokens)
    assert {"C", "##è"} <= cased
    assert run(SCRIPT, *args, "--no-strip-accents", "--overwrite").returncode == 0
    accented = set(load_vocab(str(output)).tokens)
    assert "##è" in accented and "C" not in accented


def test_rare_characters_become_unknown(args, output):
    assert run(SCRIPT, *args, "--min-frequency", 10).returncode == 0
    tokens = load_vocab(str(output)).tokens
    assert "☃" not in tokens and "ω" in tokens
    assert word_pieces("☃", tokens) == [UNK]


def parts_of(corpus):
    return find_parts(str(corpus), [str(path) for path in sorted(corpus.iterdir())], cut=True)


def test_fewer_pieces_a_word_than_the_most_frequent_words(corpus):
    words, _ = count_words(parts_of(corpus), True, True)
    learned = learn_vocabulary(words, 200, 2, 0)
    characters = [piece for piece in learned if len(piece.removeprefix("##")) == 1]
    frequent = [word for word, _ in words.most_common(200) if word not in characters]
    plain = [*SPECIAL_TOKENS, *characters, *frequent][:200]
    assert pieces_a_word(words, learned)[0] < pieces_a_word(words, plain)[0]


WORDS = st.dictionaries(st.text("abcdé日.", min_size=1, max_size=8), st.integers(1, 50), min_size=1, max_size=30)


def reference_vocabulary(words: dict[str, int], size: int, min_frequency: int) -> list[str]:
    """The same merges, all pairs counted anew each time."""
    learned = learn_vocabulary(Counter(words), size, min_frequency, 0)
    vocabulary = [piece for piece in learned if piece in SPECIAL_TOKENS or len(piece.removeprefix("##")) == 1]
    split = {word: [word[0], *(f"##{char}" for char in word[1:])] for word in words}
    split = {word: pieces for word, pieces in split.items() if set(pieces) <= set(vocabulary)}
    while len(vocabulary) < size:
        pairs = Counter()
        for word, pieces in split.items():
            for pair in zip(pieces, pieces[1:]):
                pairs[pair] += words[word]
        best = min(pairs, key=lambda pair: (-pairs[pair], pair), default=None)
        if best is None or pairs[best] < min_frequency:
            break
        merged = best[0] + best[1][2:]
        for word, pieces in split.items():
            split[word] = vocab_learning._merged(pieces, best, merged)
        if merged not in vocabulary:
            vocabulary.append(merged)
    return vocabulary


@settings(max_examples=200, deadline=None)
@given(WORDS, st.integers(20, 60), st.integers(1, 5))
def test_merges_are_those_of_the_definition(words, size, min_frequency):
    assert learn_vocabulary(Counter(words), size, min_frequency, 0) == reference_vocabulary(words, size, min_frequency)


@settings(deadline=None)
@given(WORDS, st.integers(20, 60), st.integers(0, 4))
def test_every_word_of_the_alphabet_can_be_cut(words, size, num_unused):
    vocabulary = learn_vocabulary(Counter(words), size, 1, num_unused)
    assert len(set(vocabulary)) == len(vocabulary) <= size
    for word in words:
        if {word[0], *(f"##{char}" for char in word[1:])} <= set(vocabulary):
            assert word_pieces(word, vocabulary) != [UNK]


def test_rare_words_are_forgotten_when_there_are_too_many():
    words = Counter({f"w{i}": i + 1 for i in range(100)})
    forget_rare(words, 50)
    assert len(words) <= 50 and words["w99"] == 100 and min(words.values()) > 50


def test_counting_in_bounded_memory_counts_the_same(corpus, monkeypatch):
    expected = count_words(parts_of(corpus), True, True)
    monkeypatch.setattr(vocab_learning, "MAX_CHUNKS", 10)
    assert count_words(parts_of(corpus), True, True) == expected


def test_counting_in_parts_counts_the_same(tmp_path, monkeypatch):
    (tmp_path / "text").write_text("one two\n\nthree\n\n" * 100)
    expected = count_words(parts_of(tmp_path), True, True)
    monkeypatch.setattr(parts, "PART_BYTES", 500)
    assert len(parts_of(tmp_path)) == 4
    assert count_words(parts_of(tmp_path), True, True) == expected


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (["--vocab-size", 50], ["--vocab-size 50", "115"]),
        (["--min-frequency", 0], ["--min-frequency 0"]),
        (["--num-unused", -1], ["--num-unused -1"]),
        (["--num-processes", 0], ["--num-processes 0"]),
        (["--corpus-dir", "nowhere"], ["nowhere", "--corpus-dir"]),
        (["--output-file", "/tmp"], ["/tmp", "folder"]),
    ],
)
def test_wrong_flags(args, output, flags, parts):
    fails(run(SCRIPT, *args, *flags), *parts)
    assert not output.exists()


def test_an_existing_file_is_not_replaced_unasked(args, output):
    output.write_text("mine")
    fails(run(SCRIPT, *args), str(output), "--overwrite")
    assert output.read_text() == "mine"


def test_no_words(args, tmp_path, corpus):
    other = tmp_path / "other"
    other.mkdir()
    fails(run(SCRIPT, *args, "--corpus-dir", other), "it is empty")
    (other / "a").write_bytes(b"\0" * 9)
    fails(run(SCRIPT, *args, "--corpus-dir", other), "none of its 1 files")
    (other / "a").write_text("\n \n")
    fails(run(SCRIPT, *args, "--corpus-dir", other), "no words")
    shutil.copy(corpus / "0.txt", other)
    result = run(SCRIPT, *args, "--corpus-dir", other, "--vocab-size", 3000)
    assert result.returncode == 0 and "no more than" in result.stdout


def test_no_room_for_the_file(args, tmp_path):
    (tmp_path / "file").write_text("")
    fails(run(SCRIPT, *args, "--output-file", tmp_path / "file" / "vocab.txt"), "vocab.txt")
    assert files(tmp_path) == ["file"]
