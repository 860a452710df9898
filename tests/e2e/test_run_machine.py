"""`scripts/run` on a machine that is not quite ready for it."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from firsthop.namespaces import Testbed
from firsthop.processes import Program
from firsthop.script import programs_in, run


def test_an_old_kernel_is_refused(
    bed: Testbed, launch: Callable[..., Program], clone: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    uname = tmp_path / "uname"
    uname.write_text("#!/bin/sh\necho 5.10.0-28-amd64\n")
    uname.chmod(0o755)
    script = run(launch, bed, clone, {**environment, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert script.wait(20) == 2
    assert "5.10.0-28-amd64" in script.text()
    assert "6.1 or newer" in script.text()


def test_a_machine_without_io_uring_is_told_how_to_allow_it(
    bed: Testbed, launch: Callable[..., Program], clone: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    cat = tmp_path / "cat"
    cat.write_text(
        f"""#!/bin/sh
[ "$*" != /proc/sys/kernel/io_uring_disabled ] || {{ echo 2; exit 0; }}
exec {shutil.which("cat")} "$@"
"""
    )
    cat.chmod(0o755)
    script = run(launch, bed, clone, {**environment, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert script.wait(20) == 2
    assert "io_uring is disabled on this machine (kernel.io_uring_disabled = 2)" in script.text()
    assert "sysctl -w kernel.io_uring_disabled=0" in script.text()
    assert programs_in(bed) == {}


def test_too_little_lockable_memory_is_named_with_the_fix(
    bed: Testbed, launch: Callable[..., Program], clone: Path, environment: dict[str, str]
) -> None:
    command = ["prlimit", "--memlock=65536:65536", *bed.server.command(clone / "scripts/run")]
    script = launch("scripts/run", command, clone / "run.log", environment, clone)
    assert script.wait(20) == 2
    assert "64 KiB" in script.text()
    assert "memlock" in script.text()


def test_without_cargo_the_script_says_what_to_install(
    bed: Testbed, launch: Callable[..., Program], clone: Path, building: dict[str, str], tmp_path: Path
) -> None:
    bare = {**building, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "CARGO_HOME": str(tmp_path)}
    script = run(launch, bed, clone, bare)
    assert script.wait(20) == 2
    assert "cargo is not installed" in script.text()
    assert "rustup" in script.text()
