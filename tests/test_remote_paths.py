"""Data, models and results on another file system than the local one."""

import os
import shutil
import subprocess
import sys

from tests import finetuning_runs, training_runs


def test_all_commands_on_a_remote_file_system_in_one_process(training_data, tmp_path):
    """Nothing is written to the local disk but temporary files, and these are gone at the end."""
    outside, libraries = tmp_path / "outside", tmp_path / "libraries"  # keras and matplotlib keep settings of theirs
    places = {name: tmp_path / name for name in ("TMPDIR", "HOME", "CWD")}
    for place in places.values():
        place.mkdir()
    shutil.copytree(training_data / "corpus", outside / "corpus")
    finetuning_runs.make_tasks(outside)
    result = subprocess.run(
        [sys.executable, "-m", "tests.remote_path_driver", str(outside), str(libraries)],
        cwd=places["CWD"],
        env={
            **os.environ,
            **{name: str(places[name]) for name in ("TMPDIR", "HOME")},
            **{name: str(libraries) for name in ("KERAS_HOME", "MPLCONFIGDIR")},
            "PYTHONPATH": str(training_runs.ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TF_CPP_MIN_LOG_LEVEL": "2",
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    assert "written outside" not in result.stdout
    assert [str(path) for place in places.values() for path in place.rglob("*")] == []
    for path in (
        "vocab.txt",
        "pretrain_tfrecords/manifest.json",
        "models/small/model.ckpt-12.index",
        "models/small/results/mrpc,squad_results_eval.json",
        "models/small/finetuning_models/mrpc,squad_model_1/best/model.ckpt-0.index",
        "hf/model.safetensors",
        "again/model.ckpt-12.index",
        "scores.tsv",
        "vectors.npy",
    ):
        assert f"  {path}\n" in result.stdout + "\n", path
