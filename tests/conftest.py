"""What all tests share: where the reference values are."""

import contextlib
import signal
import socket
from pathlib import Path

import hypothesis
import pytest

from tests import training_runs

hypothesis.settings.register_profile("machines", deadline=None)  # a busy machine is no fault
hypothesis.settings.load_profile("machines")
SMALL_COPY = Path(__file__).parent / "golden"


def pytest_addoption(parser):
    parser.addoption("--golden", default=str(SMALL_COPY), metavar="DIR", help="folder of reference values")


def golden_folder(config: pytest.Config) -> Path:
    """The folder of reference values that this run compares with."""
    return Path(config.getoption("--golden")).absolute()


@pytest.fixture(scope="session")
def golden(pytestconfig) -> Path:
    """The folder of reference values (`--golden DIR`)."""
    return golden_folder(pytestconfig)


def pytest_configure(config):
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell's background jobs start; tests send it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line(
        "markers",
        "golden_cases(glob, ...): runs the test once for each path below the golden folder that a glob matches, "
        "as its argument `case`; without a match there is nothing to run",
    )


def pytest_generate_tests(metafunc):
    marker = metafunc.definition.get_closest_marker("golden_cases")
    if marker is None:
        return
    root = golden_folder(metafunc.config)
    paths = sorted({path for pattern in marker.args for path in root.glob(pattern)})
    metafunc.parametrize("case", paths, ids=[str(path.relative_to(root)) for path in paths])


@pytest.fixture(scope="session")
def training_data(tmp_path_factory) -> Path:
    """A data folder with a vocabulary and shards; tests add models to it under names of their own."""
    return training_runs.make_data(tmp_path_factory.mktemp("data") / "d")


@pytest.fixture
def unused_ports():
    """A function that gives some free TCP ports of the loopback device."""

    def find(count: int) -> list[int]:
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
            for held in sockets:
                held.bind(("127.0.0.1", 0))
            return [held.getsockname()[1] for held in sockets]

    return find
