"""The benchmark of the builder runs, and finds the records of both ways equal (it fails where they are not)."""

from tests.builders import ROOT, fails, run

CORPUS = ROOT / "tests" / "golden" / "model" / "corpus"


def test_runs_on_a_small_text():
    result = run("benchmarks/build_dataset.py", "--corpus-dir", CORPUS, "--megabytes", 0.02, 0.06, "--repeats", 1)
    assert result.returncode == 0, result.stderr
    assert "ratio" in result.stdout and "0.06 MB" in result.stdout


def test_too_little_text():
    fails(run("benchmarks/build_dataset.py", "--corpus-dir", CORPUS, "--megabytes", 1, 2), "--megabytes")
