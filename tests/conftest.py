"""What all tests share: where the reference values are."""

from pathlib import Path

import pytest

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
