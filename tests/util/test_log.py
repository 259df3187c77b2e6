"""Numbers, durations and tables as people read them."""

import pytest

from util.log import count_text, heading, seconds_text, table


def test_table_columns_line_up():
    assert table(["network", "layers"], [["discriminator", 12], ["g", 3]]).splitlines() == [
        "network        layers",
        "-------------  ------",
        "discriminator      12",
        "g                   3",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (59.4, "59s"),
        (59.6, "1m00s"),
        (185, "3m05s"),
        (3599.7, "1h00m"),
        (7620, "2h07m"),
        (360000, "100h00m"),
    ],
)
def test_durations(seconds, text):
    assert seconds_text(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (950, "950"),
        (9999, "9999"),
        (12345, "12.3k"),
        (4.56e6, "4.56M"),
        (1.5e9, "1.5G"),
        (1.2e12, "1.20e+12"),
    ],
)
def test_counts(number, text):
    assert count_text(number) == text


def test_heading(capsys):
    heading("devices")
    assert capsys.readouterr().out == "\n== devices ==\n"
