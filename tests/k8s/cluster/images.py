"""What an image has and starts, as its Dockerfile says."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from .manifests import K8S


@dataclass(frozen=True)
class Image:
    """The last stage of a Dockerfile."""

    name: str
    base: str
    entrypoint: list[str]
    user: tuple[int, int]
    #: The programs in it, which the first stage builds.
    programs: list[str]


def dockerfiles() -> list[Path]:
    """All of them."""
    return sorted((K8S / "images").glob("*.Dockerfile"))


def read(name: str) -> Image:
    """Reads the Dockerfile of a service."""
    text = (K8S / "images" / f"{name}.Dockerfile").read_text()
    *build, last = re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]
    entrypoint = re.search(r"^ENTRYPOINT (.*)$", last, re.MULTILINE)
    user = re.search(r"^USER (\d+):(\d+)$", last, re.MULTILINE)
    assert entrypoint, f"{name}: no ENTRYPOINT"
    assert user, f"{name}: no USER by numbers"
    return Image(
        name,
        last.splitlines()[0],
        json.loads(entrypoint[1]),
        (int(user[1]), int(user[2])),
        re.findall(r"--bin (\S+)", "".join(build)),
    )
