"""The scripts a newcomer meets first: set-up, demo corpus, curves, demo."""

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts.demo_corpus import sentences

ROOT = Path(__file__).parent.parent


def folder_of_commands(folder: Path, **commands: str) -> Path:
    """A folder for PATH: bash and what setup.sh calls, plus links or, for text with #!, scripts."""
    folder.mkdir()
    for name in ("bash", "dirname", "cat"):
        commands[name] = shutil.which(name)
    for name, target in commands.items():
        if target.startswith("#!"):
            (folder / name).write_text(target)
            (folder / name).chmod(0o755)
        else:
            (folder / name).symlink_to(target)
    return folder


@pytest.fixture
def checkout(tmp_path) -> Path:
    """What the set-up needs of a checkout, with nothing to install, so that no network is needed."""
    root = tmp_path / "a checkout"
    root.mkdir()
    for name in ("scripts", "util"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "requirements.txt").write_text("# nothing\n")
    (root / "requirements-dev.txt").write_text("-r requirements.txt\n")
    return root


@pytest.fixture
def python_only(tmp_path) -> Path:
    """A PATH whose one Python is the one below this test's virtual environment."""
    return folder_of_commands(tmp_path / "bin", python3=os.path.realpath(sys.executable))


def start_set_up(root: Path, path: Path) -> subprocess.Popen:
    environment = {"PATH": str(path), "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    command = ["bash", str(root / "scripts/setup.sh")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, cwd="/", start_new_session=True, **pipes)


def set_up(root: Path, path: Path) -> subprocess.CompletedProcess:
    process = start_set_up(root, path)
    out, err = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def test_set_up_without_python_says_so_and_touches_nothing(checkout, tmp_path):
    ran = set_up(checkout, folder_of_commands(tmp_path / "bin"))
    assert ran.returncode == 2
    assert "no command called python3 or python" in ran.stderr
    assert not (checkout / ".venv").exists()


def test_set_up_names_what_each_python_lacks(checkout, tmp_path):
    without_venv = f'#!{shutil.which("bash")}\n[[ $2 == *ensurepip* ]] && exit 1\nexec "{sys.executable}" "$@"\n'
    shim = f"#!{shutil.which('bash')}\nexit 127\n"
    old = f"#!{shutil.which('bash')}\n[[ $2 == *print* ]] && echo is Python 3.6 || exit 1\n"
    path = folder_of_commands(tmp_path / "bin", **{"python3.13": shim, "python3": without_venv, "python": old})
    ran = set_up(checkout, path)
    assert ran.returncode == 2
    assert f"{path}/python3.13 does not start" in ran.stderr
    assert f"{path}/python3 lacks the module venv or ensurepip" in ran.stderr
    assert f"{path}/python is Python 3.6" in ran.stderr


def test_set_up_leaves_a_foreign_environment_alone(checkout, python_only):
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / "mine").touch()
    ran = set_up(checkout, python_only)
    assert ran.returncode == 2
    assert "was not made by this set-up" in ran.stderr
    assert [path.name for path in (checkout / ".venv").iterdir()] == ["mine"]


def test_set_up_fills_once_works_without_python_then_and_follows_the_requirements(checkout, python_only, tmp_path):
    assert set_up(checkout, python_only).returncode == 0
    again = set_up(checkout, folder_of_commands(tmp_path / "no python"))
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")

    (checkout / "requirements.txt").write_text("no-such-package==1.0\n")
    changed = set_up(checkout, python_only)
    assert changed.returncode == 2
    assert "pip could not install requirements-dev.txt" in changed.stderr
    assert "Traceback" not in changed.stderr
    assert set_up(checkout, python_only).returncode == 2, "a failed set-up must not count as done"


def test_set_up_twice_at_once_and_after_a_kill(checkout, python_only):
    killed = start_set_up(checkout, python_only)
    while not (checkout / ".venv/bin/python").exists():
        time.sleep(0.01)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert not (checkout / ".venv/.filled").exists()

    both = [start_set_up(checkout, python_only) for _ in range(2)]
    outputs = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum("setting up" in output for output in outputs) == 1


def test_sentences_keeps_prose_and_drops_code():
    text = "Return the  value. It is\nnever None.\n\n   >>> f(x)\n   1 2 3 4 5\n\nx ::= y | z | w\n\nShort one."
    assert list(sentences(text)) == ["Return the value.", "It is never None."]


def test_demo_corpus_is_deterministic_and_its_halves_share_no_sentence(tmp_path):
    texts = []
    for seed in ("1", "2"):
        folder = tmp_path / seed
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-m", "scripts.demo_corpus", str(folder)]
        subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
        texts.append({path.relative_to(folder): path.read_text() for path in folder.glob("*/*.txt")})
    assert texts[0] == texts[1]
    train = {line for path, text in texts[0].items() if path.parts[0] == "train" for line in text.split("\n") if line}
    held_out = texts[0][Path("heldout/part-0.txt")].split("\n")
    assert len(train) > 10000
    assert len(held_out) > 500
    assert train.isdisjoint(line for line in held_out if line)


def test_demo_task_has_every_sentence_twice(tmp_path):
    """As it is, and with two different words in each other's place; no sentence is in both files."""
    text = "\n".join(f"The {word} of number {i} is what we say here." for i, word in enumerate(["cat", "dog"] * 60))
    (tmp_path / "text.txt").write_text(text + "\ntoo short.\n")
    command = [sys.executable, "-m", "scripts.demo_acceptability", str(tmp_path / "text.txt"), str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    parts = []
    for name in ("train", "dev"):
        rows = [line.split("\t") for line in (tmp_path / f"{name}.tsv").read_text().splitlines()[1:]]
        for (sentence, original), (other, swapped) in zip(rows[::2], rows[1::2]):
            assert (original, swapped) == ("original", "swapped") and sentence in text
            assert sum(a != b for a, b in zip(sentence.split(), other.split())) == 2
            assert sorted(sentence.split()) == sorted(other.split())
        parts.append({sentence for sentence, label in rows if label == "original"})
    assert [len(part) for part in parts] == [90, 30] and not parts[0] & parts[1]
    again = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert again.returncode == 2 and "dev.tsv exist; remove them" in again.stderr


def test_results_are_compared(tmp_path):
    for name, values in (("a", [1.0, 3.0, 8.0]), ("b", [5.0])):
        trials = [{"results": {"rte": {"dev": {"accuracy": value}}}} for value in values]
        (tmp_path / f"{name}.json").write_text(json.dumps({"trials": trials}))
    command = [sys.executable, "-m", "scripts.compare_results", *(f"{n}={tmp_path}/{n}.json" for n in "ab")]
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert [line.split()[-3:] for line in output.splitlines()[2:]] == [
        ["3.00", "1.00-8.00", "3"],
        ["5.00", "5.00-5.00", "1"],
    ]
    assert subprocess.run(command[:3], cwd=ROOT, capture_output=True, check=False).returncode == 2


def plot(metrics: Path, picture: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "scripts.plot_curves", str(metrics), str(picture)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_curves_pass_over_a_half_line_and_name_a_bad_one(tmp_path):
    metrics, picture = tmp_path / "metrics.jsonl", tmp_path / "curves.png"
    row = {"step": 50, "split": "train", "masked_lm_loss": 6.5, "disc_loss": 0.4321}
    metrics.write_text(json.dumps(row) + "\n" + '{"step": 10')
    ran = plot(metrics, picture)
    assert ran.returncode == 0, ran.stderr
    assert "0.432" in ran.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "does not end in .png" in plot(metrics, metrics).stderr and metrics.read_text().startswith('{"step": 50')

    metrics.write_text('{"step": 10\n' + json.dumps(row) + "\n")
    ran = plot(metrics, tmp_path / "none.png")
    assert ran.returncode == 2
    assert f"{metrics}, line 1" in ran.stderr
    assert not (tmp_path / "none.png").exists()


def demo(folder: Path) -> subprocess.CompletedProcess:
    command = ["bash", str(ROOT / "scripts/demo.sh"), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_demo_refuses_a_folder_that_is_not_its_own(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    ran = demo(tmp_path)
    assert ran.returncode == 2
    assert "not from an earlier demo" in ran.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_demo_learns_from_raw_text_and_can_be_run_again(tmp_path):
    first = demo(tmp_path / "demo")
    assert first.returncode == 0, first.stderr
    results = json.loads((tmp_path / "demo/models/demo/results/unsup_results.json").read_text())
    assert results["disc_auc"] >= 0.8
    assert results["masked_lm_accuracy"] >= 0.15
    trained, random = (
        [trial["results"]["acceptability"]["dev"]["accuracy"] for trial in json.loads(path.read_text())["trials"]]
        for path in (
            tmp_path / "demo/models/demo/results/acceptability_results.json",
            tmp_path / "demo/random_weights/acceptability_results.json",
        )
    )
    spread = max(max(scores) - min(scores) for scores in (trained, random))
    assert statistics.median(trained) - statistics.median(random) > spread
    assert (tmp_path / "demo/curves.png").read_bytes().startswith(b"\x89PNG")
    curve = (tmp_path / "demo/models/demo/metrics.jsonl").read_text()
    again = demo(tmp_path / "demo")
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "demo/models/demo/metrics.jsonl").read_text() == curve
