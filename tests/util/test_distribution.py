"""Which devices are asked for, and what is said where they are not there."""

import json
import os
from types import SimpleNamespace

import pytest

from util import distribution
from util.cluster import Cluster
from util.distribution import Devices, choose, open_devices, read_cluster
from util.errors import UserError

WORKERS = ["host1:2222", "host2:2222"]


def asked(**hparams) -> SimpleNamespace:
    defaults = dict.fromkeys(("use_tpu", "require_gpu", "deterministic", "gpu_memory_growth"), False)
    defaults |= dict.fromkeys(("tpu_name", "tpu_zone", "gcp_project"))
    return SimpleNamespace(**{**defaults, "distribution": "auto", "logical_cpus": 0, **hparams})


def set_cluster(monkeypatch, value) -> None:
    monkeypatch.setenv("TF_CONFIG", value if isinstance(value, str) else json.dumps(value))


def cluster_of(workers, task) -> dict:
    return {"cluster": {"worker": workers}, "task": task}


def test_no_cluster(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert read_cluster() is None
    for value in ("", {}, {"task": {"type": "worker", "index": 0}}, {"cluster": {}}):
        set_cluster(monkeypatch, value)
        assert read_cluster() is None


def test_a_cluster(monkeypatch):
    set_cluster(monkeypatch, cluster_of(WORKERS, {"type": "worker", "index": 1}))
    assert read_cluster() == {"workers": WORKERS, "index": 1}


TASK = {"type": "worker", "index": 0}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{", "TF_CONFIG is not valid JSON"),
        ("[]", "TF_CONFIG is not a JSON object"),
        ({"cluster": WORKERS, "task": TASK}, "names no workers"),
        (cluster_of("host1:2222", TASK), "names no workers"),
        (cluster_of([], TASK), "names no workers"),
        (cluster_of(["host1"], TASK), "names no workers as host:port"),
        (cluster_of([1, 2], TASK), "names no workers"),
        (cluster_of(WORKERS[:1] * 2, TASK), "the same address twice"),
        ({"cluster": {"worker": WORKERS, "ps": ["host3:1"]}, "task": TASK}, "TF_CONFIG has ps; only workers"),
        ({"cluster": {"chief": ["host3:1"]}, "task": TASK}, "TF_CONFIG has chief; only workers"),
        ({"cluster": {"worker": WORKERS}}, "task must be a worker with an index from 0 to 1; got null"),
        (cluster_of(WORKERS, [0]), r"task must be a worker .*got \[0\]"),
        (cluster_of(WORKERS, {"type": "worker"}), "task must be a worker"),
        (cluster_of(WORKERS, {"type": "chief", "index": 0}), "task must be a worker"),
        (cluster_of(WORKERS, {"type": "worker", "index": 2}), "from 0 to 1"),
        (cluster_of(WORKERS, {"type": "worker", "index": -1}), "from 0 to 1"),
        (cluster_of(WORKERS, {"type": "worker", "index": "0"}), "from 0 to 1"),
        (cluster_of(WORKERS, {"type": "worker", "index": True}), "from 0 to 1"),
    ],
)
def test_a_malformed_cluster(monkeypatch, value, message):
    set_cluster(monkeypatch, value)
    with pytest.raises(UserError, match=message) as caught:
        choose(asked())
    assert "\n" not in str(caught.value)


def test_choosing(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert choose(asked()) == "auto"
    assert choose(asked(distribution="mirrored")) == "mirrored"
    assert choose(asked(use_tpu=True)) == choose(asked(distribution="tpu")) == "tpu"
    with pytest.raises(UserError, match='"multi_worker" needs TF_CONFIG'):
        choose(asked(distribution="multi_worker"))
    set_cluster(monkeypatch, cluster_of(WORKERS, TASK))
    assert choose(asked()) == choose(asked(distribution="multi_worker")) == "multi_worker"
    assert choose(asked(distribution="default")) == "default"
    assert choose(asked(use_tpu=True)) == "tpu"
    set_cluster(monkeypatch, cluster_of(WORKERS[:1], TASK))
    assert choose(asked()) == "auto"


@pytest.mark.parametrize("tpu", [{}, {"tpu_name": "local"}, {"tpu_name": "no-such-tpu", "tpu_zone": "nowhere"}])
def test_a_tpu_that_is_not_there(monkeypatch, tpu):
    """An error, not a run on the CPU."""
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with pytest.raises(UserError, match="use_tpu is true and no TPU was found"):
        open_devices(asked(use_tpu=True, **tpu), Cluster())


def devices(replicas: int, workers: int) -> Devices:
    return Devices(SimpleNamespace(num_replicas_in_sync=replicas), "multi_worker", workers, 0)


def test_other_devices_than_before_are_said(tmp_path, capsys):
    """Where a run goes on; not where it begins anew, and once alone."""
    for step, now in (
        (0, devices(4, 2)),
        (5, devices(4, 2)),
        (0, devices(8, 4)),
        (6, devices(2, 1)),
        (7, devices(2, 1)),
    ):
        now.note(str(tmp_path), step)
    said = capsys.readouterr().out
    assert said.startswith("note: from step 6 on 2 replicas on 1 host, before 8 replicas on 4 hosts: the order of")
    assert said.count("note:") == 1


def test_replicas_on_a_cpu_share_its_free_memory():
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 1e8 < distribution._host_memory("MemAvailable") <= distribution._host_memory("MemTotal") <= physical
    two = Devices(SimpleNamespace(num_replicas_in_sync=2), "mirrored", 1, 0)
    if two.on_cpu:
        assert distribution._gpu_memory() is None
        assert 1e8 < two.free_memory() <= physical / 2
        assert two.free_memory() <= two.whole_memory()
