"""An installation without containers: what scripts/install puts where, and that the units start the programs."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import contain, manifests, seccomp, units
from cluster.site import MEMLOCK
from firsthop.namespaces import Namespace, give_address
from firsthop.processes import Program
from firsthop.stack import READY_SECONDS
from test_programs import settings

INSTALL = manifests.REPOSITORY / "scripts/install"
#: By service: its unit, below the folder of units.
UNITS = {
    "relay": "firsthop-relay@.service",
    "transceiver": "firsthop-transceiver.service",
    "signaling": "firsthop-signaling.service",
}
#: The sum of systemd's own weights of what a service may do; one that is not confined at all has 12.7.
EXPOSURE_MAX = 2.0

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="an installation is root's")


def install(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs the script."""
    return subprocess.run([INSTALL, *map(str, arguments)], capture_output=True, text=True, check=False)


@pytest.fixture
def staged(binaries: Path, tmp_path: Path) -> Path:
    """The root of an installation of everything."""
    root = tmp_path / "root"
    root.mkdir()
    done = install("--root", root, "--binaries", binaries, "--cpus", "0-1")
    assert done.returncode == 0, done.stderr
    assert "systemctl enable --now firsthop-relay@a" in done.stdout
    return root


def test_settings_and_keys_outlive_an_upgrade_and_the_end(staged: Path, binaries: Path) -> None:
    own = staged / "etc/firsthop/relay.env"
    own.write_text("FIRSTHOP_CORES=7\n")
    key = staged / "etc/firsthop/data.toml"
    key.write_text("a key\n")
    os.chown(key, 65532, 65532)
    again = install("--root", staged, "--binaries", binaries)
    assert again.returncode == 0, again.stderr
    assert "Left as they were" in again.stdout
    assert "The relay keeps its processors, 0-1" in again.stdout
    assert (key.stat().st_uid, key.stat().st_gid) == (65532, 65532)
    gone = install("--root", staged, "--uninstall")
    assert gone.returncode == 0, gone.stderr
    assert own.read_text() == "FIRSTHOP_CORES=7\n"
    assert key.read_text() == "a key\n"
    left = [one for one in staged.rglob("*") if one.is_file() and "firsthop" in str(one.relative_to(staged))]
    assert {one.parent for one in left} == {staged / "etc/firsthop"}, left
    assert not list((staged / "usr/local/bin").iterdir())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--binaries", "/nonexistent"], "/nonexistent lacks keys relay preflight transceiver signaling"),
        (["--services", "relay,nobody"], "there is no service 'nobody'"),
        (["--services", "relay,"], "'relay,' has a comma too many"),
        (["--services", "relay,signaling,relay"], "relay stands twice"),
        (["--cpus", "many"], "'many' is no list of processors"),
        (["--cpus", "3-2"], "3-2 ends before it begins"),
        (["--cpus", "1", "--services", "signaling"], "--cpus is for the relay"),
        (["--prefix", "here"], "--prefix here is no absolute path"),
        (["--prefix", "/opt/a#b"], "--prefix '/opt/a#b' has characters that a unit's command cannot"),
        (["--prefix", "/opt/a b"], "--prefix '/opt/a b' has characters"),
        (["--prefix", "/opt/100%"], "--prefix '/opt/100%' has characters"),
        (["--root", "/nonexistent"], "there is no folder /nonexistent"),
        (["--root"], "--root needs a value"),
        (["--colour"], "unknown argument --colour"),
        (["--uninstall"], "nothing is installed"),
    ],
)
def test_what_cannot_be_is_told_before_anything_changes(
    arguments: list[str], said: str, binaries: Path, tmp_path: Path
) -> None:
    usual = ["--root", str(tmp_path), "--binaries", str(binaries)]
    done = install(*usual, *arguments)
    assert done.returncode == 2, done.stdout
    assert said in done.stderr
    assert not list(tmp_path.iterdir())


#: A machine whose every change is forgotten: its root is this one's, with a layer above in memory. Commands that
#: would act on the running system write down how they were called.
FORGETFUL = """
mount -t tmpfs none "$SCRATCH"
mkdir "$SCRATCH"/upper "$SCRATCH"/work "$SCRATCH"/root
mount -t overlay none -o lowerdir=/,upperdir="$SCRATCH"/upper,workdir="$SCRATCH"/work "$SCRATCH"/root
for part in "$REPOSITORY" "$BINARIES"; do
    mkdir -p "$SCRATCH/root$part"
    mount --bind "$part" "$SCRATCH/root$part"
done
mount -t tmpfs none "$SCRATCH"/root/run
mount --bind /dev "$SCRATCH"/root/dev
mkdir -p "$SCRATCH"/root/run/systemd/system "$SCRATCH"/root/run/recorded
for command in systemctl sysctl; do
    printf '#!/bin/sh\\necho %s "$@" >>/run/calls\\n' $command >"$SCRATCH/root/run/recorded/$command"
    chmod +x "$SCRATCH/root/run/recorded/$command"
done
chroot "$SCRATCH"/root /bin/bash -euc "$DO"
"""


def test_on_the_running_machine_it_loads_what_it_has_put_there_and_starts_nothing(
    binaries: Path, tmp_path: Path
) -> None:
    do = f"""
        PATH=/run/recorded:$PATH
        {INSTALL} --binaries {binaries} >/run/said
        getent passwd firsthop | cut -d: -f1
        stat -c '%A %G' /etc/firsthop /etc/firsthop/relay.env
        /usr/local/bin/relay --version | cut -d' ' -f1
        {INSTALL} --uninstall >/run/said
        test ! -e /usr/local/bin/relay
        cat /run/calls
    """
    environment = {
        **os.environ,
        "SCRATCH": str(tmp_path),
        "REPOSITORY": str(manifests.REPOSITORY),
        "BINARIES": str(binaries),
        "DO": do,
    }
    command = ["unshare", "--mount", "bash", "-euc", FORGETFUL]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "firsthop",
        "drwxr-x--- firsthop",
        "-rw-r----- firsthop",
        "relay",
        "systemctl daemon-reload",
        "sysctl --quiet --load /etc/sysctl.d/60-firsthop.conf",
        "systemctl disable --now firsthop-relay@a firsthop-relay@b firsthop-transceiver firsthop-signaling",
        "systemctl daemon-reload",
    ]
    assert not Path("/usr/local/bin/relay").exists()


def test_an_own_prefix_is_where_the_units_look(binaries: Path, tmp_path: Path) -> None:
    done = install("--root", tmp_path, "--binaries", binaries, "--prefix", "/opt/firsthop", "--services", "signaling")
    assert done.returncode == 0, done.stderr
    unit = units.read(tmp_path / "etc/systemd/system" / UNITS["signaling"])
    assert unit["ExecStart"] == ["/opt/firsthop/bin/signaling"]
    assert (tmp_path / "opt/firsthop/bin/signaling").exists()
    assert not (tmp_path / "etc/sysctl.d").exists(), "the kernel's settings are the relay's"


def test_one_machine_has_one_prefix(staged: Path, binaries: Path) -> None:
    before = {one: one.stat().st_mtime_ns for one in staged.rglob("*") if one.is_file()}
    done = install("--root", staged, "--binaries", binaries, "--prefix", "/opt/firsthop", "--services", "signaling")
    assert done.returncode == 2, done.stdout
    assert f"Firsthop is installed below {staged}/usr/local already" in done.stderr
    assert f"--uninstall --prefix /usr/local --root {staged}" in done.stderr
    assert {one: one.stat().st_mtime_ns for one in staged.rglob("*") if one.is_file()} == before
    nothing = install("--root", staged, "--prefix", "/opt/firsthop", "--uninstall")
    assert nothing.returncode == 2
    assert f"nothing is installed below {staged}/opt/firsthop" in nothing.stderr


def _whole(staged: Path) -> Path:
    """The staged root with systemd's own units, which ours name."""
    for folder in ("lib/systemd/system", "usr/lib/systemd/system"):
        if Path("/", folder).is_dir() and not (staged / folder).exists():
            shutil.copytree(Path("/", folder), staged / folder, symlinks=True, ignore_dangling_symlinks=True)
    return staged


@pytest.mark.parametrize("service", UNITS)
def test_systemd_finds_nothing_wrong(service: str, staged: Path) -> None:
    root = _whole(staged)
    name = UNITS[service].replace("@.", "@a.")
    done = subprocess.run(
        ["systemd-analyze", "verify", f"--root={root}", "--man=no", "--recursive-errors=no", name],
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [line for line in done.stderr.splitlines() if "firsthop" in line]
    assert done.returncode == 0, done.stderr
    assert ours == []


@pytest.mark.parametrize("service", UNITS)
def test_a_unit_may_do_little(service: str, staged: Path) -> None:
    path = staged / "etc/systemd/system" / UNITS[service]
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", "--json=short", path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rights = {one["name"]: float(one["exposure"]) for one in json.loads(done.stdout) if one["exposure"]}
    assert 0 < sum(rights.values()) <= EXPOSURE_MAX, rights


@pytest.mark.parametrize("service", UNITS)
def test_settings_to_begin_with_are_settings(service: str, binaries: Path) -> None:
    path = manifests.REPOSITORY / f"scripts/systemd/settings/{service}.env"
    known = settings(binaries, service)
    named = set(re.findall(r"^#?(FIRSTHOP_\w+)=", path.read_text(), re.MULTILINE))
    assert len(named) >= 5
    assert named <= known


def test_stopping_has_the_time_that_it_takes() -> None:
    folder = manifests.REPOSITORY / "scripts/systemd"
    drains = units.environment(folder / "settings/transceiver.env")["FIRSTHOP_DRAIN"]
    assert int(units.read(folder / UNITS["transceiver"])["TimeoutStopSec"][0]) >= int(drains) + 30
    assert int(units.read(folder / UNITS["relay"])["TimeoutStopSec"][0]) >= 25 + 30


@pytest.fixture
def machine() -> Iterator[Namespace]:
    """A host with the addresses of the settings to begin with."""
    made = Namespace("machine")
    try:
        for address in ("203.0.113.10/32", "10.1.0.4/16"):
            give_address(made, "lo", address)
        yield made
    finally:
        made.delete()


def test_the_units_start_the_programs(
    staged: Path, machine: Namespace, images: Path, binaries: Path, tmp_path: Path
) -> None:
    _make_keys(staged, binaries)
    programs = [_start(service, staged, machine, images, tmp_path) for service in UNITS]
    try:
        for program in programs:
            program.wait_for_line("ready", READY_SECONDS)
        for program in programs:
            # As the operations guide says of logs.
            assert {"timestamp", "level", "target", "fields"} <= json.loads(program.text().splitlines()[0]).keys()
            assert program.stop() == 0, program.text()
            assert program.complaints() == []
    finally:
        for program in programs:
            program.kill()


def test_one_instance_of_the_relay_takes_over_from_the_other(
    staged: Path, machine: Namespace, images: Path, binaries: Path, tmp_path: Path
) -> None:
    _make_keys(staged, binaries)
    relays = []
    try:
        # `systemctl start firsthop-relay@a`, then `…@b`: they share what is in /run.
        for instance in ("a", "b"):
            relays.append(_start("relay", staged, machine, images, tmp_path, instance))
            relays[-1].wait_for_line("ready", READY_SECONDS)
        first, second = relays
        assert first.wait(READY_SECONDS) == 0
        assert "handed over" in first.text()
        assert "took over" in second.text()
        assert second.stop() == 0
    finally:
        for relay in relays:
            relay.kill()


def _make_keys(staged: Path, binaries: Path) -> None:
    folder = staged / "etc/firsthop"
    subprocess.run([binaries / "keys", "init", folder], check=True)
    (folder / "control-secret").write_text("0123456789abcdef0123456789abcdef\n")
    (folder / "api-keys.toml").write_text("key = []\n")
    (folder / "control-secret").chmod(0o640)
    for path in folder.iterdir():
        os.chown(path, 65532, 65532)
    folder.chmod(0o755)


def _start(service: str, staged: Path, machine: Namespace, images: Path, tmp_path: Path, instance: str = "") -> Program:
    """Starts a unit's program: its command, its variables, its filter of system calls, as a user without rights."""
    unit = units.read(staged / "etc/systemd/system" / UNITS[service])
    variables = dict(one.split("=", 1) for one in unit["Environment"])
    files = list(unit["EnvironmentFile"])
    if service == "relay":
        files += units.read(staged / "etc/systemd/system/firsthop-relay@.service.d/cpus.conf")["EnvironmentFile"]
    for file in files:
        variables.update(units.environment(Path(f"{staged}{file}")))
    root = tmp_path / f"{service}{instance}-root"
    shutil.copytree(images / service, root, symlinks=True, copy_function=os.link)
    runtime = tmp_path / f"{service}-run"
    runtime.mkdir(exist_ok=True)
    os.chown(runtime, 65532, 65532)
    mounts = [(staged / "etc/firsthop", "/etc/firsthop", True), (runtime, "/run/firsthop", False)]
    for _, target, _ in mounts:
        Path(f"{root}{target}").mkdir(exist_ok=True)
    calls = units.system_calls(unit["SystemCallFilter"])
    spec = {
        "root": str(root),
        "mounts": [{"source": str(source), "target": target, "read_only": only} for source, target, only in mounts],
        "read_only": unit["ProtectSystem"] == ["strict"],
        "uid": 65532,
        "gid": 65532,
        "memlock": MEMLOCK,
        "no_new_privileges": unit["NoNewPrivileges"] == ["yes"],
        "seccomp": seccomp.assemble(calls, seccomp.KILL_PROCESS).hex(),
        "argv": shlex.split(unit["ExecStart"][0]),
        "environment": variables,
    }
    path = tmp_path / f"{service}{instance}.json"
    path.write_text(json.dumps(spec))
    name = service + instance
    return Program(name, machine.command(sys.executable, contain.__file__, path), tmp_path / f"{name}.log")
