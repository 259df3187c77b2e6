"""Workers that meet, agree, live and end together: small processes without TensorFlow."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from tests.training_runs import ROOT
from util.agreement import MARK
from util.cluster import differences

WORKER = """
import json, os, sys, threading, time
sys.path.insert(0, sys.argv[1])
from util import agreement, cluster, leaving, meeting
from util.errors import UserError, run_main
from util.folder_lock import FolderLock
from contextlib import nullcontext
settings = json.loads(sys.argv[2])
meeting.WAIT_SECONDS = settings.get("wait", 20.0)
meeting.LATER_SECONDS = meeting.ANSWER_SECONDS = 1.0
leaving.TIDY_SECONDS = settings.get("tidy", 20.0)
agreement.MARK_SECONDS = 1.0
cluster.BEAT_SECONDS, cluster.SILENCE_SECONDS = 0.2, settings.get("silence", 20.0)

def advice():
    if settings.get("storage_hangs"):
        time.sleep(30)
    return "ADVICE"

class UnavailableError(Exception):
    "As TensorFlow's."

def main():
    workers, index, act = settings["workers"], settings["index"], settings.get("act", "")
    with cluster.Cluster(workers, index, advice) as all_workers:
        with FolderLock(settings["folder"]) if index == 0 else nullcontext():
            all_workers.agree({"x": settings.get("x", 1)})
            agreement.check_shared(all_workers, settings["folder"])
            all_workers.loaded()
            print("agreed", flush=True)
            if act == "wait":
                threading.Event().wait()  # as in a collective
            if act == "broken":
                sys.stdin.readline()
                raise UnavailableError("Socket closed")
            if act == "fail":
                raise UserError("no such file")
            if act == "fault":
                raise ValueError("a fault")
            if act == "sleep":
                time.sleep(1)
            print(f"worked {time.monotonic()}", flush=True)
    print(f"done {time.monotonic()}", flush=True)
    return 0

run_main(main)
"""


@pytest.fixture
def start(tmp_path, unused_ports):
    """A function that starts workers, one for each dict of settings; what still runs is killed afterwards."""
    running = []

    def start(*each: dict) -> list[subprocess.Popen]:
        addresses = [f"127.0.0.1:{port}" for port in unused_ports(len(each))]
        for index, settings in enumerate(each):
            values = {"workers": addresses, "index": index, "folder": str(tmp_path / "m"), **settings}
            if "start" in values:
                continue
            command = [sys.executable, "-c", WORKER, str(ROOT), json.dumps(values)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            running.append(subprocess.Popen(command, **pipes))
        return running

    yield start
    for process in running:
        process.kill()
        process.communicate()


def ends(processes: list[subprocess.Popen]) -> list[tuple[int, str, str]]:
    """Exit code, output and the one message of each."""
    outputs = [process.communicate(timeout=120) for process in processes]
    return [(process.returncode, *output) for process, output in zip(processes, outputs, strict=True)]


def wait_for(process: subprocess.Popen, word: str) -> None:
    assert any(line.startswith(word) for line in process.stdout), process.communicate()


def one_message(end: tuple[int, str, str]) -> str:
    code, _, errors = end
    assert code == 2 and errors.startswith("error: ") and errors.count("error:") == 1, end
    return errors.removeprefix("error: ").strip()


def test_all_come_and_end_together(start):
    """Nobody is done before the slowest has worked; the ports are free for TensorFlow's servers meanwhile."""
    processes = start({}, {}, {"act": "sleep"})
    found = ends(processes)
    assert [code for code, _, _ in found] == [0, 0, 0], found
    times = [dict(line.split() for line in out.splitlines() if line[:4] in ("work", "done")) for _, out, _ in found]
    assert max(float(t["worked"]) for t in times) <= min(float(t["done"]) for t in times)
    assert "worker 1 (127.0.0.1:" in found[0][1] and "waiting for worker 0" in found[1][1]


def test_the_port_is_free_while_the_connections_stay(start, unused_ports):
    processes = start({"act": "wait"}, {"act": "wait"})
    for process in processes:
        wait_for(process, "agreed")
    settings = json.loads(processes[0].args[-1])
    for address in settings["workers"]:
        with socket.create_server(("", int(address.rpartition(":")[2]))) as server:  # as gRPC's, with SO_REUSEADDR
            assert server.getsockname()[1] == int(address.rpartition(":")[2])


@pytest.mark.parametrize("lost", [0, 1], ids=["the chief", "another"])
def test_a_killed_worker(start, tmp_path, lost):
    processes = start(*[{"act": "wait"}] * 3)
    for process in processes:
        wait_for(process, "agreed")
    processes[lost].kill()
    found = ends(processes)
    for end in (end for i, end in enumerate(found) if i != lost):
        message = one_message(end)
        assert message.startswith(f"worker {lost} (127.0.0.1:") and message.endswith("closed. ADVICE"), message
    assert (lost == 0) == os.path.exists(tmp_path / "m" / "in_use.json")  # a chief that leaves gives the folder back


def test_a_model_folder_that_hangs_with_the_network(start):
    """As one that is mounted from elsewhere: the message comes without what only the folder could tell."""
    processes = start({"act": "wait", "storage_hangs": True, "tidy": 1.0}, {"act": "wait"})
    for process in processes:
        wait_for(process, "agreed")
    processes[1].kill()
    assert one_message(ends(processes)[0]).endswith(" is gone: its connection was closed.")


@pytest.mark.parametrize("lost", [0, 2], ids=["the chief", "another"])
def test_a_worker_that_hangs(start, lost):
    """The others leave; the one that hung hears of it when it wakes up."""
    processes = start(*[{"act": "wait", "silence": 1.5}] * 3)
    for process in processes:
        wait_for(process, "agreed")
    processes[lost].send_signal(signal.SIGSTOP)
    others = [process for i, process in enumerate(processes) if i != lost]
    for end in ends(others):
        message = one_message(end)
        assert message.startswith(f"worker {lost} (") and "gave no sign of life for 2 s" in message, message
    processes[lost].send_signal(signal.SIGCONT)
    assert one_message(ends([processes[lost]])[0]).startswith("worker ")


def test_a_worker_that_fails_says_why_on_all(start):
    processes = start({"act": "wait"}, {"act": "fail"}, {"act": "wait"})
    found = ends(processes)
    assert one_message(found[1]) == "no such file"
    for end in (found[0], found[2]):
        assert one_message(end).endswith(") stopped: no such file")


def test_a_fault_keeps_its_traceback_and_ends_all(start):
    found = ends(start({"act": "fault"}, {"act": "wait"}))
    assert found[0][0] == 1 and "Traceback" in found[0][2]
    assert one_message(found[1]).endswith(", the chief) stopped: ValueError: a fault")


def test_a_broken_step_is_explained_by_the_worker_that_was_lost(start):
    """TensorFlow may say that a step broke before the connection shows why."""
    processes = start({"act": "broken", "silence": 1.5}, {"act": "wait", "silence": 1.5})
    for process in processes:
        wait_for(process, "agreed")
    processes[1].send_signal(signal.SIGSTOP)
    processes[0].stdin.write("\n")
    processes[0].stdin.flush()
    (code, out, errors) = ends(processes[:1])[0]
    assert "a step failed (UnavailableError: Socket closed)" in out
    assert one_message((code, out, errors)).startswith("worker 1 (")


def test_workers_that_do_not_agree(start):
    found = ends(start({}, {}, {"x": 2}))
    messages = {one_message(end) for end in found}
    assert len(messages) == 1
    assert "x: 1 on worker 0 (127.0.0.1:" in messages.pop() and "agreed" not in found[1][1]


def test_the_same_index_twice(start):
    """Nobody is the third; all who came hear of it."""
    processes = start({}, {}, {"start": False})
    wait_for(processes[0], "waiting")
    workers = json.loads(processes[0].args[-1])["workers"]
    host, port = workers[0].split(":")
    with socket.create_connection((host, int(port))) as other:
        other.sendall(json.dumps({"worker": 1, "workers": workers}).encode() + b"\n")
        found = ends(processes)
        assert json.loads(other.recv(4096))["stop"] == one_message(found[0]) == one_message(found[1])
    assert "two processes are worker 1 (from 127.0.0.1:" in one_message(found[0])


def test_another_number_of_workers(start, unused_ports):
    first, second = (f"127.0.0.1:{port}" for port in unused_ports(2))
    found = ends(start({"workers": [first, second, "127.0.0.1:9"]}, {"workers": [first, second]}))
    assert len({one_message(end) for end in found}) == 1
    assert f"has 2 workers ({first}, {second}), the chief has 3" in one_message(found[0])


def test_a_worker_that_does_not_come(start):
    found = ends(start({"wait": 1.5}, {}, {"start": False}))
    assert len({one_message(end) for end in found}) == 1
    assert one_message(found[0]).startswith("worker 2 (127.0.0.1:") and "did not come within 2 s" in found[0][2]


def test_a_chief_that_is_not_there(start):
    found = ends(start({"start": False}, {"wait": 1.5}))
    assert ", the chief) was not there within 2 s: Connection refused" in one_message(found[0])


def test_another_service_at_the_chiefs_address(start):
    """It answers every connection as a web server would."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            with contextlib.suppress(OSError):  # the test is over
                while True:
                    connection = server.accept()[0]
                    connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")
                    connection.close()

        threading.Thread(target=answer, daemon=True).start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        processes = start({"start": False}, {"workers": [address, "127.0.0.1:0"], "wait": 1})
        message = one_message(ends(processes)[0])
        server.shutdown(socket.SHUT_RDWR)
    assert f"worker 0 ({address}, the chief) was not there within 1 s: what answers there is no worker" in message


def test_workers_with_folders_of_their_own(start, tmp_path):
    """The one that does not see what the chief writes says so on all, and no mark or folder is left."""
    (tmp_path / "other").mkdir()
    found = ends(start({}, {"folder": str(tmp_path / "other")}, {}))
    for message in map(one_message, found):
        assert f"there is no {tmp_path}/other/{MARK} after 1 s; let model_dir or --data-dir" in message, message
    assert os.listdir(tmp_path) == ["other"] and os.listdir(tmp_path / "other") == []


def test_workers_with_copies_of_a_folder(start, tmp_path):
    """Where a killed run left its mark, which the next run with one folder replaces."""
    for name in ("m", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / MARK).write_text("of another run")
    for message in map(one_message, ends(start({}, {"folder": str(tmp_path / "other")}))):
        assert f"the file {MARK} in the model folder: " in message and "of another run on worker 1 (" in message
    (tmp_path / "m" / MARK).write_text("of another run")
    assert [code for code, _, _ in ends(start({}, {}))[2:]] == [0, 0]
    assert os.listdir(tmp_path / "m") == []


def test_a_worker_that_is_not_at_its_address(start, unused_ports):
    """Here the address of nobody (RFC 5737): TensorFlow would wait for ever."""
    first, second = unused_ports(2)
    workers = {"workers": [f"127.0.0.1:{first}", f"192.0.2.1:{second}"]}
    found = ends(start(workers, workers))
    assert len({one_message(end) for end in found}) == 1
    assert f"but the chief does not find it at 192.0.2.1:{second}" in one_message(found[0])


def test_strangers_are_no_workers(start):
    """They are said and closed; those who say nothing bother nobody."""
    processes = start({"wait": 20}, {"start": False})
    wait_for(processes[0], "waiting")
    settings = json.loads(processes[0].args[-1])
    port = int(settings["workers"][0].rpartition(":")[2])
    silent = socket.create_connection(("127.0.0.1", port))
    for text in (b"GET / HTTP/1.1\r\n\r\n", b"[1]\n", b'{"worker": 1}\n', b"\xff\n"):
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(text)
            assert stranger.recv(100) == b""
    with socket.create_connection(("127.0.0.1", port)):
        pass  # as a probe whether anybody listens
    other = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(ROOT), json.dumps({**settings, "index": 1})],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    found = ends([processes[0], other])
    silent.close()
    assert [code for code, _, _ in found] == [0, 0], found
    assert found[0][1].count("is no worker's, it is closed") == 4


def test_a_port_in_use(start, unused_ports):
    with socket.create_server(("", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        found = ends(start({"workers": [address, "127.0.0.1:9"]}))
    assert f"cannot listen at {address}, its address in TF_CONFIG: Address already in use" in one_message(found[0])


def test_a_worker_that_comes_late_or_again(start):
    """One that was killed while it waited may come again; one that waits for the chief tries until it is there."""
    processes = start({"start": False}, {"act": ""})
    settings = json.loads(processes[0].args[-1])
    wait_for(processes[0], "waiting")
    time.sleep(1)
    command = [sys.executable, "-c", WORKER, str(ROOT)]
    chief = subprocess.Popen(
        [*command, json.dumps({**settings, "index": 0})], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert [code for code, _, _ in ends([processes[0], chief])] == [0, 0]


def test_differences_are_few_and_short():
    told = {0: {f"h{i}": "a" * 1000 for i in range(20)}, 3: {f"h{i}": "b" for i in range(20)}}
    text = differences(told, ["a:1", "b:1", "c:1", "d:1"])
    assert text.count("\n") == 12 and "and 10 more" in text and max(map(len, text.splitlines())) < 320
    assert differences({0: {"x": 1}, 1: {"x": 1}}, ["a:1", "b:1"]) == ""
