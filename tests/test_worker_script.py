"""scripts/worker.sh and the recipes of docs/several_machines.md, as far as one machine can run them."""

import json
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from tests.training_runs import ROOT

SCRIPT = ["bash", str(ROOT / "scripts/worker.sh")]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    values = {**os.environ, **environment}
    return subprocess.run(arguments, cwd=ROOT, env=values, capture_output=True, text=True, check=False, timeout=30)


def cluster(index: int, *workers: str) -> dict:
    return {"cluster": {"worker": list(workers)}, "task": {"type": "worker", "index": index}}


def test_tf_config():
    ran = run(*SCRIPT, "1", "a,b:99", "bash", "-c", 'echo "$TF_CONFIG" "$1"', "-", "an argument")
    assert ran.stdout.endswith(" an argument\n"), ran.stderr
    assert json.loads(ran.stdout.removesuffix(" an argument\n")) == cluster(1, "a:2222", "b:99")
    assert run(*SCRIPT, "1", "a").returncode == 2


@pytest.mark.parametrize(
    ("work", "code", "expected"), [("touch", 0, 0), ("true", 0, 75), ("touch", 2, 2), ("true", 2, 2)]
)
def test_exit_code_says_whether_it_is_finished(tmp_path, work, code, expected):
    command = [*SCRIPT, "0", "a", "bash", "-c", f"{work} {tmp_path / 'f'}; exit {code}"]
    assert run(*command, FINISHED=str(tmp_path / "f")).returncode == expected
    assert run(*command).returncode == code


def test_what_is_finished_is_not_started(tmp_path):
    (tmp_path / "f").touch()
    ran = run(*SCRIPT, "0", "a", "false", FINISHED=str(tmp_path / "f"))
    assert ran.returncode == 0 and ran.stdout == f"note: {tmp_path}/f is there, nothing is left to do\n"


@pytest.mark.parametrize("finished", ["", "no such file"])
def test_signals_reach_the_command(finished):
    stops = 'trap "sleep 0.3; echo stopped; exit 0" TERM; echo ready; while true; do sleep 0.1; done'
    process = subprocess.Popen(
        [*SCRIPT, "0", "a", "bash", "-c", stops],
        env={**os.environ, "FINISHED": finished},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=30)[0] == "stopped\n"
    assert process.returncode == (75 if finished else 0)


def recipe(language: str) -> str:
    """The recipe of a language in the documentation."""
    text = (ROOT / "docs/several_machines.md").read_text(encoding="utf-8")
    return re.search(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1]


def stand_in(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
    (folder / name).chmod(0o755)


def test_slurm_recipe(tmp_path):
    """With stand-ins for Slurm's commands and for python: every task gets its TF_CONFIG, an unfinished job requeues."""
    stand_in(tmp_path, "scontrol", '[[ $1 == requeue ]] && echo "requeued $2" || printf "node1\\nnode2\\n"')
    stand_in(tmp_path, "srun", 'shift 2; for i in 0 1; do SLURM_PROCID=$i "$@"; done')
    stand_in(tmp_path, "python", 'echo "$TF_CONFIG $*"')
    script = recipe("bash").replace("DATA/", str(tmp_path) + "/")
    path = f"{tmp_path}:{os.environ['PATH']}"
    ran = run("bash", "-c", script, PATH=path, SLURM_JOB_NODELIST="node[1-2]", SLURM_JOB_ID="7")
    first, second, last = ran.stdout.splitlines()
    for index, line in enumerate((first, second)):
        config, arguments = line.split(" run_pretraining.py ")
        assert json.loads(config) == cluster(index, "node1:2222", "node2:2222")
        assert arguments == "--data-dir DATA --model-name small --hparams preset=small"
    assert last == "requeued 7" and ran.returncode == 0, ran.stderr
    (tmp_path / "models/small").mkdir(parents=True)
    (tmp_path / "models/small/model.ckpt-1000000.index").touch()
    ran = run("bash", "-c", script, PATH=path, SLURM_JOB_NODELIST="node[1-2]", SLURM_JOB_ID="7")
    assert "requeued" not in ran.stdout and ran.stdout.count("is there, nothing is left to do") == 2


def test_kubernetes_recipe(tmp_path):
    """The pod's command with the variable that an Indexed Job sets; names are those of its pods and Service."""
    stand_in(tmp_path, "python", 'echo "$TF_CONFIG"')
    text = recipe("yaml")
    command = " ".join(re.search(r"args:\n\s+- (.*?)\n +resources", text, re.DOTALL)[1].split())
    ran = run("bash", "-c", command, PATH=f"{tmp_path}:{os.environ['PATH']}", JOB_COMPLETION_INDEX="3")
    job, service = re.findall(r"^  name: (\w+)$", text, re.MULTILINE)[::-1]
    count = int(re.search(r"completions: (\d+)", text)[1])
    assert json.loads(ran.stdout) == cluster(3, *(f"{job}-{i}.{service}:2222" for i in range(count))), ran.stderr


def test_systemd_recipe():
    """Its command is one that worker.sh takes."""
    command = shlex.split(re.search(r"^ExecStart=(.*)$", recipe("ini"), re.MULTILINE)[1])
    assert command[:4] == ["/bin/bash", "scripts/worker.sh", "0", "host1,host2"]
    assert (ROOT / command[5]).exists()
