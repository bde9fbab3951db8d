"""Small pipelines with known behaviour, and one server over all of them for the tests that do not hurt it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.pipelines import write_repository
from tests.serving import Server, forwardpass, serving


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The private store and trust list of all servers of this run."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """<pipeline>/1/ of everything in pipelines.py, its own code trusted."""
    root = tmp_path_factory.mktemp("models")
    write_repository(root)
    forwardpass("trust", root, data=data)
    return root


@pytest.fixture(scope="session")
def server(repository: Path, data: Path) -> Iterator[Server]:
    with serving(repository, data=data) as running:
        yield running
