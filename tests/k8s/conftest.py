"""Fixtures: the programs, the images made of them, and the Secrets that the guide makes."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from cluster import pods
from cluster.manifests import K8S, KUBECTL
from cluster.site import Site, build_images
from firsthop import audio, namespaces
from firsthop.audio import Samples
from firsthop.caller import Caller


def pytest_sessionstart() -> None:
    """Clears away what a killed run left."""
    # Who was started in the background ignores what Ctrl-C sends, and so would every program started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.geteuid() == 0 and shutil.which("ip") is not None:
        namespaces.remove_stale()


@pytest.fixture(scope="session")
def binaries() -> Path:
    """The folder with the built programs, which `scripts/test` names."""
    folder = os.environ.get("FIRSTHOP_BINARIES")
    if not folder:
        pytest.exit("FIRSTHOP_BINARIES is not set: run these tests by scripts/test --only k8s", returncode=2)
    return Path(folder)


@pytest.fixture(scope="session")
def images(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root file systems of the images."""
    return build_images(binaries, tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="session")
def secrets(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """The Secrets that the commands of k8s/README.md make, with a key `dev` of the API."""
    folder = tmp_path_factory.mktemp("secrets")
    commands = re.search(r"<!-- secrets -->\n```sh\n(.*?)```", (K8S / "README.md").read_text(), re.DOTALL)
    assert commands, "k8s/README.md says how to make the Secrets"
    # Everything as it stands there, but that nothing is sent to a cluster.
    kubectl = f'kubectl() {{ if [ "$1" = apply ]; then cat; echo ---; else "{KUBECTL}" "$@"; fi; }}'
    script = f"set -eu\n{kubectl}\n{commands[1]}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}", "API_KEY": "dev", "MODEL_KEY": "model-key"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return pods.secrets([one for one in yaml.safe_load_all(done.stdout) if one])


@pytest.fixture
def site(secrets: dict[str, dict[str, bytes]], images: Path, tmp_path: Path) -> Iterator[Callable[[str], Site]]:
    """Makes sites of an overlay; all are closed when the test ends."""
    made: list[Site] = []

    def make(overlay: str) -> Site:
        new = Site(overlay, secrets, images, tmp_path / overlay.replace("/", "-"))
        made.append(new)
        return new

    yield make
    for one in made:
        one.close()


@pytest.fixture(scope="session")
def sentence(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    """What a caller says."""
    return audio.load(audio.speak(audio.SENTENCE, tmp_path_factory.mktemp("speech") / "sentence.wav"))


@pytest.fixture
def caller() -> Iterator[Callable[..., Caller]]:
    """Makes callers; all are closed when the test ends."""
    made: list[Caller] = []

    def make(*arguments: object, **settings: object) -> Caller:
        new = Caller(*arguments, **settings)  # type: ignore[arg-type]
        made.append(new)
        return new

    yield make
    for one in made:
        one.close()
