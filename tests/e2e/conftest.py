"""Fixtures: a test bed, the programs, callers; and what every test asserts at its end."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from firsthop import audio, namespaces
from firsthop.audio import Samples
from firsthop.caller import Caller
from firsthop.namespaces import Testbed
from firsthop.processes import Program
from firsthop.stack import Stack
from testnet.world import World

REPOSITORY = Path(__file__).resolve().parents[2]

_PASSED: pytest.StashKey[bool] = pytest.StashKey()
_PROGRAMS: pytest.StashKey[list[Program]] = pytest.StashKey()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Notes for the fixtures whether the test has passed, and adds the programs' last words to a failure."""
    report = yield
    if call.when == "call":
        item.stash[_PASSED] = report.passed
    if report.failed:
        for program in item.stash.get(_PROGRAMS, []):
            tail = "\n".join(line for _, line in program.lines[-60:])
            report.sections.append((f"log of {program.name} ({call.when})", tail))
    return report


def pytest_sessionstart() -> None:
    """Says at once when the tests cannot run here, and clears away what a killed run left."""
    # Who was started in the background ignores what Ctrl-C sends, and so would every program started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.exit("the end-to-end tests make network namespaces: they need root and iproute2", returncode=2)
    namespaces.remove_stale()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begins with the test that builds: later the lints beside these tests hold the build folder, and it waits."""
    items.sort(key=lambda item: "clean_clone_builds" not in item.name)


@pytest.fixture(scope="session")
def binaries() -> Path:
    """The folder with the built programs, which `scripts/test` names."""
    folder = os.environ.get("FIRSTHOP_BINARIES")
    if not folder:
        pytest.exit("FIRSTHOP_BINARIES is not set: run these tests by scripts/test --only e2e", returncode=2)
    return Path(folder)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean clone, with what is not committed yet laid over it, as a commit of it would be."""
    folder = tmp_path_factory.mktemp("clone") / "firsthop"
    subprocess.run(["git", "clone", "--quiet", REPOSITORY, folder], check=True)
    changes = subprocess.run(["git", "diff", "--binary", "HEAD"], cwd=REPOSITORY, capture_output=True, check=True)
    if changes.stdout:
        subprocess.run(["git", "apply"], cwd=folder, input=changes.stdout, check=True)
    return folder


@pytest.fixture
def environment(binaries: Path) -> dict[str, str]:
    """Runs what is built already."""
    return {"FIRSTHOP_PROGRAMS": str(binaries.resolve())}


@pytest.fixture
def building() -> dict[str, str]:
    """Builds as a newcomer does, but into the folder where most of it is built already."""
    return {
        "FIRSTHOP_PROFILE": "dev",
        "CARGO_TARGET_DIR": str(REPOSITORY / os.environ.get("CARGO_TARGET_DIR", "target")),
    }


@pytest.fixture(scope="session")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    """What the callers say."""
    return audio.load(audio.speak(audio.TEXT, tmp_path_factory.mktemp("speech") / "spoken.wav"))


@pytest.fixture(scope="session")
def sentence(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    """What a caller says who takes a single turn."""
    return audio.load(audio.speak(audio.SENTENCE, tmp_path_factory.mktemp("speech") / "sentence.wav"))


@pytest.fixture
def bed() -> Iterator[Testbed]:
    """Client, server and stranger, for one test."""
    with namespaces.testbed() as made:
        yield made


@pytest.fixture
def stack(request: pytest.FixtureRequest, bed: Testbed, binaries: Path, tmp_path: Path) -> Iterator[Stack]:
    """The programs of one test, not yet started.

    At the end each of them must stop when told to, and when the test has passed none may have warned of anything but
    what the test expected.
    """
    made = Stack(bed, binaries, tmp_path)
    request.node.stash[_PROGRAMS] = made.programs
    try:
        yield made
        made.stop()
        if request.node.stash.get(_PASSED, False):
            assert made.complaints() == []
    finally:
        made.kill_all()


@pytest.fixture(scope="module")
def _module_stack(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with namespaces.testbed() as bed:
        made = Stack(bed, binaries, tmp_path_factory.mktemp("stack"))
        try:
            made.start()
            yield made
            made.stop()
            assert made.complaints() == []
        finally:
            made.kill_all()


@pytest.fixture
def shared_stack(request: pytest.FixtureRequest, _module_stack: Stack) -> Stack:
    """Running programs that all tests of a module share: for tests that leave nothing behind."""
    request.node.stash[_PROGRAMS] = _module_stack.programs
    return _module_stack


@pytest.fixture
def world(request: pytest.FixtureRequest, binaries: Path, tmp_path: Path) -> Iterator[World]:
    """The test world, which runs. At its end the same is asked of its programs as of a stack's."""
    made = World(binaries, tmp_path)
    request.node.stash[_PROGRAMS] = made.programs
    try:
        made.start()
        yield made
        faults = made.stop()
        if request.node.stash.get(_PASSED, False):
            assert faults + made.complaints() == []
    finally:
        made.close()


@pytest.fixture
def caller(bed: Testbed, stack: Stack, spoken: Samples) -> Iterator[Callable[..., Caller]]:
    """Makes callers in the client's namespace; all are closed when the test ends."""
    made: list[Caller] = []

    def make(**settings: Any) -> Caller:
        new = Caller(bed.client, stack.url, settings.pop("samples", spoken), **settings)
        made.append(new)
        return new

    yield make
    for one in made:
        one.close()


@pytest.fixture
def launch(request: pytest.FixtureRequest) -> Iterator[Callable[..., Program]]:
    """Starts any program (the scripts, say); what still runs when the test ends is killed."""
    made: list[Program] = []
    request.node.stash[_PROGRAMS] = made

    def start(*arguments: Any, **settings: Any) -> Program:
        program = Program(*arguments, **settings)
        made.append(program)
        return program

    yield start
    for program in made:
        program.kill()
