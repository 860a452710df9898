"""`scripts/run` of a clone, in the namespace of a test's server."""

import contextlib
import subprocess
from collections.abc import Callable
from pathlib import Path

from .namespaces import Testbed
from .processes import Program

#: How long it may take until what is built already says that it is ready.
READY_SECONDS = 30.0


def run(
    launch: Callable[..., Program], bed: Testbed, clone: Path, environment: dict[str, str], *options: str
) -> Program:
    """Starts it with these options, and does not wait for it."""
    command = bed.server.command(clone / "scripts/run", *options)
    return launch("scripts/run", command, clone / "run.log", environment, clone)


def programs_in(bed: Testbed) -> dict[str, int]:
    """What runs in the server's namespace: names and process ids."""
    pids = subprocess.run(["ip", "netns", "pids", bed.server.name], capture_output=True, text=True, check=True)
    found = {}
    for pid in pids.stdout.split():
        with contextlib.suppress(OSError):  # it has ended since
            found[Path(f"/proc/{pid}/comm").read_text().strip()] = int(pid)
    return found
