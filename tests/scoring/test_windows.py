"""Windows and batches: every token counts once, with context around it; every row is in one batch."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scoring.windows import ROWS, TOKENS, batches, each_token, merged, windows

CLS, SEP = 1, 2
TEXTS = st.lists(st.integers(0, 90), min_size=1, max_size=8).map(
    lambda sizes: [list(range(10, 10 + size)) for size in sizes]
)
LONGEST = st.integers(8, 40)


@given(TEXTS, LONGEST)
def test_every_token_is_kept_once_in_order_with_a_quarter_of_a_window_around_it(texts, longest):
    cut = windows(texts, longest)
    room = longest - 2
    for number, ids in enumerate(texts):
        mine = [window for window in cut if window.text == number]
        kept = [window.start + place for window in mine for place in window.kept]
        assert kept == list(range(len(ids)))
        for window in mine:
            assert len(window.ids) == min(room, len(ids))
            assert list(window.ids) == ids[window.start : window.start + room]
            for place in window.kept:
                at = window.start + place
                assert place >= min(at, room // 4) and len(window.ids) - place > min(len(ids) - 1 - at, room // 4 - 1)


@given(TEXTS, LONGEST)
def test_what_a_network_gives_comes_back_at_its_token(texts, longest):
    """A network that gives the id itself."""
    cut = windows(texts, longest)
    results = each_token(cut, longest, CLS, SEP, lambda ids, lengths: ids.astype(float))
    assert [list(values) for values in merged(cut, results, len(texts))] == texts


@given(TEXTS, st.integers(92, 600), st.randoms())
def test_batches_hold_each_row_once_padded_and_within_bounds(texts, longest, random):
    rows = [random.randrange(len(texts)) for _ in range(30)]
    seen = []
    for batch in batches(texts, longest, CLS, SEP, rows):
        count, length = batch.ids.shape
        assert length <= longest and count <= ROWS and count * length <= max(TOKENS, length)
        for row, ids, size in zip(batch.rows, batch.ids, batch.lengths):
            assert list(ids) == [CLS, *texts[rows[row]], SEP] + [0] * (length - size)
        seen += list(batch.rows)
    assert sorted(seen) == list(range(30))


def test_many_texts_make_few_lengths():
    shapes = {batch.ids.shape[1] for batch in batches([[5] * n for n in range(510)] * 3, 512, CLS, SEP)}
    assert len(shapes) <= 13 and max(shapes) == 512, shapes
    assert np.min(list(shapes)) == 8
