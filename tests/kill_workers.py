#!/usr/bin/env python3
"""Shows that several workers, one of them killed now and then, end with the very bits of an uninterrupted run.

Trains once without interruption; then again, losing a worker at random moments and starting all again with the same
command each time. Looks whether the others left with one message and exit code 2 (and where a cable was pulled, the one
behind it as well), says after how many seconds, and compares all tensors of the final checkpoints. Then stops a run and
goes on with another number of workers, whose losses must be those of the uninterrupted run.

How a worker is lost: KILL (kill -9), STOP (SIGSTOP: it hangs), or CUT: every worker in a network namespace of its own,
and the cable of one is pulled (needs root and Linux's `ip netns`).

usage: tests/kill_workers.py [--workers 2] [--kills 5] [--how KILL|STOP|CUT] [--steps 200] [--go-on-with 2] [--seed 0]
                             [--hparams JSON|NAME=VALUE ...]
"""

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests import training_runs  # noqa: E402
from tests.kill_and_resume import differences, latest_step, leftovers, logged_step  # noqa: E402

LEAVE_SECONDS = 60.0  # within which the others must have left


class Network:
    """Addresses on the loopback device for as many workers as are asked for."""

    def __init__(self, workers: int):
        with contextlib.ExitStack() as stack:
            held = [stack.enter_context(socket.socket()) for _ in range(workers)]
            for one in held:
                one.bind(("127.0.0.1", 0))
            self.addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in held]

    def inside(self, worker: int) -> list[str]:
        """What a worker's command begins with."""
        return []


class Namespaces(Network):
    """A network namespace for each worker, all plugged into one bridge."""

    def __init__(self, workers: int):
        self.names = [f"electra{os.getpid()}-{worker}" for worker in range(workers)]
        self.bridge = f"el{os.getpid()}"
        self.addresses = [f"10.77.0.{worker + 1}:2222" for worker in range(workers)]
        _ip("link", "add", self.bridge, "type", "bridge")
        _ip("link", "set", self.bridge, "up")
        for worker, name in enumerate(self.names):
            _ip("netns", "add", name)
            _ip("link", "add", self.cable(worker), "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", self.cable(worker), "master", self.bridge, "up")
            for command in (f"addr add 10.77.0.{worker + 1}/24 dev eth0", "link set eth0 up", "link set lo up"):
                _ip("-n", name, *command.split())

    def cable(self, worker: int) -> str:
        """The bridge's end of a worker's cable."""
        return f"{self.bridge}w{worker}"

    def inside(self, worker: int) -> list[str]:
        return ["ip", "netns", "exec", self.names[worker]]

    def set(self, worker: int, state: str) -> None:
        """Pulls a worker's cable ("down") or plugs it in ("up")."""
        _ip("link", "set", self.cable(worker), state)

    def close(self) -> None:
        for name in self.names:
            _ip("netns", "del", name)
        _ip("link", "del", self.bridge)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


class Workers:
    """The processes of one run.

    Args:
      network: where they are.
      command: of each.
      logs: a folder for what they say.
    """

    def __init__(self, network: Network, count: int, command: list[str], logs: Path):
        logs.mkdir(exist_ok=True)
        self.logs = [logs / f"worker-{index}.log" for index in range(count)]
        self.processes = []
        for index in range(count):
            cluster = {"cluster": {"worker": network.addresses[:count]}, "task": {"type": "worker", "index": index}}
            with open(self.logs[index], "w", encoding="utf-8") as log:
                self.processes.append(
                    subprocess.Popen(
                        [*network.inside(index), sys.executable, *command],
                        cwd=training_runs.ROOT,
                        env={**os.environ, "TF_CONFIG": json.dumps(cluster), "TF_CPP_MIN_LOG_LEVEL": "2"},
                        stdout=log,
                        stderr=subprocess.STDOUT,
                    )
                )

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *exception) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def said(self, index: int) -> str:
        """All that a worker has said so far."""
        return self.logs[index].read_text(encoding="utf-8", errors="replace")

    def wait_until(self, true: Callable[[], bool]) -> None:
        """Waits for something that happens while all of them run."""
        while not true():
            if ended := [i for i, process in enumerate(self.processes) if process.poll() is not None]:
                raise RuntimeError(f"worker {ended[0]} ended before it was interrupted:\n{self.said(ended[0])}")
            time.sleep(0.05)

    def ends(self, indices: list[int], seconds: float = 3600.0) -> list[int | None]:
        """Exit codes of some, None for those that still run so many seconds later."""
        deadline = time.monotonic() + seconds
        codes = []
        for index in indices:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.processes[index].wait(max(0.0, deadline - time.monotonic()))
            codes.append(self.processes[index].returncode)
        return codes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--how", default="KILL", choices=["KILL", "STOP", "CUT"])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--go-on-with", type=int, default=0, metavar="WORKERS", help="0: leave that out")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--hparams", action="append", default=[], metavar="JSON|NAME=VALUE", help="of all runs")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="kill_workers_"))
    try:
        with networks(arguments) as network:
            problems = compare(training_runs.make_data(folder), network, arguments)
    finally:
        shutil.rmtree(folder)
    print("\n".join(problems) or "equal: every tensor, slots and step included; each survivor left with one message")
    return 1 if problems else 0


@contextlib.contextmanager
def networks(arguments: argparse.Namespace) -> Iterator[Network]:
    """The network that the workers are lost in."""
    network = (Namespaces if arguments.how == "CUT" else Network)(arguments.workers)
    try:
        yield network
    finally:
        if isinstance(network, Namespaces):
            network.close()


def compare(data: Path, network: Network, arguments: argparse.Namespace) -> list[str]:
    """Runs all and lists what is not as it should be."""
    steps = {"num_train_steps": arguments.steps, "save_checkpoints_steps": 5, "iterations_per_loop": 5}
    hparams = [steps, *arguments.hparams]
    problems = finish(data, network, arguments.workers, "whole", hparams)
    moments = random.Random(arguments.seed)
    for kill in range(arguments.kills):
        start = latest_step(data / "models" / "killed")
        moment = start + moments.randint(1, max(1, (arguments.steps - start) // (arguments.kills - kill + 1)))
        lost = moments.randrange(arguments.workers)
        problems += lose(data, network, arguments, hparams, moment, lost)
    if problems:
        return problems
    problems += finish(data, network, arguments.workers, "killed", hparams)
    problems = problems or differences(data, arguments.steps) + leftovers(data, arguments.steps)
    if arguments.go_on_with and not problems:
        problems = go_on(data, network, arguments, hparams)
    return problems


def finish(data: Path, network: Network, count: int, model: str, hparams: list) -> list[str]:
    """Runs workers to the end."""
    command = training_runs.pretraining_command(data, model, *hparams)
    with Workers(network, count, command, data / "logs") as workers:
        codes = workers.ends(list(range(count)))
        return [f"{model}: exit code {c}\n{workers.said(i)}" for i, c in enumerate(codes) if c != 0]


def lose(
    data: Path, network: Network, arguments: argparse.Namespace, hparams: list, moment: int, lost: int
) -> list[str]:
    """Starts workers, loses one when a step is logged, and looks how the others end (all, where a cable is pulled)."""
    folder, count, how = data / "models" / "killed", arguments.workers, arguments.how
    cut = isinstance(network, Namespaces)
    command = training_runs.pretraining_command(data, "killed", *hparams)
    with Workers(network, count, command, data / "logs") as workers:
        workers.wait_until(lambda: "first step" in workers.said(0) and logged_step(folder) >= moment)
        if cut:
            network.set(lost, "down")
        else:
            workers.processes[lost].send_signal(getattr(signal, f"SIG{how}"))
        begin = time.monotonic()
        leaving = [index for index in range(count) if cut or index != lost]
        codes = workers.ends(leaving, LEAVE_SECONDS)
        seconds = time.monotonic() - begin
        messages = {index: re.findall(r"^error: (.*)", workers.said(index), re.MULTILINE) for index in leaving}
        problems = [f"worker {i} ended with {code}\n{workers.said(i)}" for i, code in zip(leaving, codes) if code != 2]
        for index, found in messages.items():
            fitting = len(found) == 1 and (f"worker {lost} (" in found[0] or index == lost)
            if not fitting or "Traceback" in workers.said(index):
                problems.append(f"worker {index} said\n{workers.said(index)}")
        if cut:
            network.set(lost, "up")
    who = "all" if cut else "the others"
    print(f"{how} of worker {lost} at step {moment}: {who} had left after {seconds:.1f} s with {codes}", flush=True)
    for index, found in messages.items():
        print(f"  worker {index}: {' | '.join(found)}", flush=True)
    return problems


def go_on(data: Path, network: Network, arguments: argparse.Namespace, hparams: list) -> list[str]:
    """Stops a run half-way by SIGTERM on one worker and goes on with another number of them."""
    model, before, after = "changed", arguments.workers, arguments.go_on_with
    folder, command = data / "models" / model, training_runs.pretraining_command(data, model, *hparams)
    with Workers(network, before, command, data / "logs") as workers:
        workers.wait_until(lambda: logged_step(folder) >= arguments.steps // 2)
        workers.processes[-1].send_signal(signal.SIGTERM)
        if any(workers.ends(list(range(before)))):
            return ["SIGTERM did not stop all workers:\n" + workers.said(0)]
    stopped = latest_step(folder)
    with Workers(network, after, command, data / "logs") as workers:
        if any(workers.ends(list(range(after)))):
            return [f"{after} workers did not go on:\n" + workers.said(0)]
        note = re.findall(r"^note: from step .*", workers.said(0), re.MULTILINE)
    print(f"stopped at step {stopped}; {''.join(note)}")
    losses = [[r["loss"] for r in training_runs.read_metrics(data, name)] for name in ("whole", model)]
    if not note or len(losses[1]) != arguments.steps:
        return [f"no note, or {len(losses[1])} losses"]
    furthest = np.max(np.abs(np.array(losses[1]) / np.array(losses[0]) - 1))
    print(f"losses of {before} then {after} workers: at most {furthest:.2g} from those of {before} (relative)")
    return [] if furthest < 1e-3 else [f"losses differ by {furthest:.2g}"]


if __name__ == "__main__":
    sys.exit(main())
