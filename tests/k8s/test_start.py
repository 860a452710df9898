"""The programs start with exactly the arguments, environment, files, user and rights of the manifests.

Inside the root file systems of their images: a call, the upgrade of the relay under it, a drain.
"""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cluster import contain, manifests, seccomp
from cluster.site import Site
from firsthop import audio, metrics
from firsthop.audio import Samples
from firsthop.caller import Caller
from firsthop.namespaces import Namespace
from firsthop.processes import Program
from firsthop.stack import READY_SECONDS
from firsthop.waiting import until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="containers are namespaces: that takes root")


#: Where a pod is, and its address.
Place = tuple[Namespace, str]


def start_node(site: Site) -> None:
    """Does what node-setup does."""
    setup = site.start("node-setup", "setup", site.place("node-setup"))
    setup.wait_for_line("ready", READY_SECONDS)
    assert setup.stop() == 0


def start_relay(site: Site, again: str = "") -> Program:
    """Starts the relay's pod: what initialises it first."""
    place = site.place("relay")
    report = site.run("relay", "preflight", place) if not again else None
    assert report is None or "io_uring_disabled" in report.text()
    relay = site.start("relay", "relay", place, again)
    relay.wait_for_line("ready", READY_SECONDS)
    until("the relay is ready", lambda: site.get(site.node, site.node_ip, 9101, "/readyz") == 200, READY_SECONDS)
    return relay


def start_redis(site: Site) -> None:
    """Starts the Redis of the manifests: Debian's, for the image is not ours, with the image's arguments."""
    namespace, address = site.place("redis")
    arguments = manifests.container(site.objects, "redis", "redis").spec["args"]
    site.names["redis"] = address
    program = Program(
        "redis", namespace.command(*arguments, "--bind", address, "--protected-mode", "no"), site.log("redis")
    )
    site.programs.append(program)
    program.wait_for_line("Ready to accept connections", READY_SECONDS)


def start_transceiver(site: Site, place: Place | None = None) -> Program:
    """Starts a transceiver, which the headless Service names from then on."""
    place = place or site.place("transceiver")
    program = site.start("transceiver", "transceiver", place)
    program.wait_for_line("ready", READY_SECONDS)
    site.names["transceiver"] = place[1]
    until("it is ready", lambda: site.get(site.node, place[1], 5080, "/readyz") == 200, READY_SECONDS)
    return program


def start_signaling(site: Site, place: Place | None = None) -> str:
    """Starts signaling and waits until it finds the transceivers; returns its URL."""
    place = place or site.place("signaling")
    site.start("signaling", "signaling", place)
    until("it is ready", lambda: site.get(site.node, place[1], 8080, "/readyz") == 200, READY_SECONDS)
    return f"http://{place[1]}:8080"


def complaints(site: Site) -> list[str]:
    """What the programs have warned of."""
    return [f"{one.name}: {line}" for one in site.programs for line in one.complaints() if one.name != "redis"]


def alike(said: Samples, heard: Samples) -> bool:
    """Whether what was heard is what was said, second by second, for the most part."""
    return float(np.median(audio.likeness(said, heard))) > 0.65


def test_policies_let_a_call_through_and_nobody_else(
    site: Callable[[str], Site], caller: Callable[..., Caller], sentence: Samples
) -> None:
    dev = site("dev")
    start_node(dev)
    start_redis(dev)
    start_relay(dev)
    place = dev.place("transceiver")
    start_transceiver(dev, place)
    signaling = dev.place("signaling")
    dev.enforce_policies()
    start_signaling(dev, signaling)
    proxy = dev.start_proxy(signaling[1], 8080)
    call = caller(dev.client, f"http://{proxy}:80", sentence)
    call.call()
    call.speak()
    call.wait_for_event("output_audio_buffer.stopped", 30)
    assert alike(sentence, call.heard())
    for namespace, _ in (place, signaling):
        assert dev.refused(namespace, "output") == 0, "a program wants what no policy allows"

    # A stranger, with everything that it takes but the right address.
    before = dev.refused(place[0], "input")

    def knock() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.sendto(b"FH", (place[1], 5000))

    dev.client.call(knock)
    until("the trunk is closed to it", lambda: dev.refused(place[0], "input") > before, 10)
    assert dev.get(dev.client, place[1], 5080, "/healthz", patience=1) == 0
    assert dev.get(dev.client, signaling[1], 8080, "/healthz", patience=1) == 0
    assert dev.get(dev.client, dev.names["redis"], 6379, "/", patience=1) == 0
    assert dev.get(dev.node, place[1], 5080, "/healthz") == 200


def test_a_call_goes_on_through_the_upgrade_of_the_relay(
    site: Callable[[str], Site], caller: Callable[..., Caller], sentence: Samples
) -> None:
    dev = site("dev")
    start_node(dev)
    start_redis(dev)
    old = start_relay(dev)
    transceiver = start_transceiver(dev)
    url = start_signaling(dev)

    call = caller(dev.client, url, sentence)
    call.call()
    call.speak()
    call.wait_for_event("output_audio_buffer.stopped", 30)
    assert alike(sentence, call.heard())
    assert call.selected_pair()[1] == (dev.node_ip, 3478)

    # The DaemonSet's surge: the new pod beside the old one, which is deleted when the new one has been ready.
    new = start_relay(dev, "-new")
    new.wait_for_line("took over", READY_SECONDS)
    old.wait_for_line("standing by", READY_SECONDS)
    assert old.running()
    assert old.stop() == 0
    said = len(call.event_types())
    call.speak()
    until("the call goes on", lambda: "output_audio_buffer.stopped" in call.event_types()[said:], 30)
    assert dev.get(dev.node, dev.node_ip, 9101, "/readyz") == 200

    # A pod that is deleted drains: it takes no new calls, and ends with its last one.
    transceiver.signal(signal.SIGTERM)
    until("it drains", lambda: dev.get(dev.node, dev.names["transceiver"], 5080, "/readyz") == 503, READY_SECONDS)
    assert transceiver.running()
    assert call.hang_up().status == 200
    assert transceiver.wait(READY_SECONDS) == 0
    # As a pod without successor: flows may last for some seconds.
    new.signal(signal.SIGINT)
    assert new.wait(READY_SECONDS) == 0
    assert complaints(dev) == []


def test_keys_are_rotated_by_new_secrets_and_no_call_drops(
    site: Callable[[str], Site], caller: Callable[..., Caller], sentence: Samples, binaries: Path, tmp_path: Path
) -> None:
    dev = site("dev")
    folder = tmp_path / "keys"

    def keys(*arguments: str) -> None:
        command = [binaries / "keys", arguments[0], folder, *arguments[1:]]
        subprocess.run(command, check=True, capture_output=True)
        dev.set_secret("firsthop-data-keyring", {"data.toml": (folder / "data.toml").read_bytes()})
        dev.set_secret("firsthop-api-keyring", {"api.toml": (folder / "api.toml").read_bytes()})

    keys("init")
    start_node(dev)
    start_redis(dev)
    relay = start_relay(dev)
    transceiver = start_transceiver(dev)
    url = start_signaling(dev)
    signaling = dev.programs[-1]
    old = caller(dev.client, url, sentence)
    old.call()
    for step, arguments in enumerate((["add"], ["activate", "2"]), start=1):
        keys(*arguments)
        for program in (relay, transceiver, signaling):
            until(
                f"{program.name} has read the new key",
                lambda p=program, n=step: p.count('"file reloaded","setting":"keyring"') >= n,
                READY_SECONDS,
            )
    new = caller(dev.client, url, sentence)
    new.call()
    assert old.server_credentials()[0][:2] != new.server_credentials()[0][:2], "both name the same key"
    for call in (old, new):
        said = len(call.event_types())
        call.speak()
        until(
            "it is heard",
            lambda c=call, n=said: "output_audio_buffer.stopped" in c.event_types()[n:],
            READY_SECONDS,
        )
    assert complaints(dev) == []


@pytest.mark.parametrize("overlay", ["region", "global/frankfurt"])
def test_a_region_starts_as_its_manifests_say(
    overlay: str, site: Callable[[str], Site], caller: Callable[..., Caller], sentence: Samples
) -> None:
    region = site(overlay)
    start_node(region)
    start_relay(region)
    start_transceiver(region)
    url = start_signaling(region)
    # What the autoscaler goes by.
    scaler = manifests.named(region.objects, "HorizontalPodAutoscaler", "transceiver")
    _, page = metrics.get(region.node, 5080, "/metrics", region.names["transceiver"])
    for one in scaler["spec"]["metrics"]:
        assert f"\n{one['pods']['metric']['name']}{{" in page
    # There is no model server here. That a session is made, and that its client's checks come through the public
    # address, shows the rest.
    call = caller(region.client, url, sentence)
    assert call.post(call.offer()).status == 201
    call.accept()
    call.wait_for_state("connected", 30)
    assert call.selected_pair()[1] == (region.settings["PUBLIC_ADDRESS"].split(":")[0], 3478)


@pytest.mark.parametrize("overlay", ["edge", "global/tokyo"])
def test_an_edge_site_starts_as_its_manifests_say(overlay: str, site: Callable[[str], Site]) -> None:
    edge = site(overlay)
    start_node(edge)
    start_relay(edge)


def test_a_node_is_set_up_for_relays(site: Callable[[str], Site]) -> None:
    dev = site("dev")
    start_node(dev)
    profile = dev.node_files / "var/lib/kubelet/seccomp/firsthop/relay.json"
    assert profile.read_bytes() == (manifests.K8S / "base/node-setup/relay.json").read_bytes()
    folder = os.stat(dev.node_files / "run/firsthop")
    # The relay's group may make its socket there, and others may not look.
    assert (folder.st_uid, folder.st_gid, stat.S_IMODE(folder.st_mode)) == (0, 65532, 0o770)
    # Again, as after a restart of the pod.
    again = dev.start("node-setup", "setup", dev.place("node-setup"), "-again")
    again.wait_for_line("ready", READY_SECONDS)
    assert again.stop() == 0


def test_the_runtimes_own_rule_against_io_uring_is_told_by_the_preflight(site: Callable[[str], Site]) -> None:
    dev = site("dev")
    start_node(dev)
    profile = dev.node_files / "var/lib/kubelet/seccomp/firsthop/relay.json"
    content = json.loads(profile.read_text())
    content["syscalls"] = [one for one in content["syscalls"] if "io_uring_setup" not in one["names"]]
    profile.write_text(json.dumps(content))
    # As a runtime does it: the call fails, and does not end the program.
    dev.strict = False
    report = dev.start("relay", "preflight", dev.place("relay"))
    assert report.wait(READY_SECONDS) == 2
    assert "FAIL  io_uring" in report.text(), report.text()


def test_the_profile_allows_no_namespaces_of_ones_own() -> None:
    numbers = seccomp.numbers()
    profile = manifests.K8S / "base/node-setup/relay.json"
    code = seccomp.program(profile, seccomp.NOT_PERMITTED)
    # In a process of its own, which the filter is for ever on.
    attempt = f"""
import ctypes, errno, os, signal, sys
sys.path.insert(0, {str(Path(contain.__file__).parent)!r})
import contain
libc = ctypes.CDLL(None, use_errno=True)
def ask(number, flags):
    ctypes.set_errno(0)
    child = libc.syscall(*map(ctypes.c_long, (number, flags, 0, 0, 0, 0)))
    if child == 0 and number == {numbers["clone"]}:
        os._exit(0)
    if child > 0:
        os.waitpid(child, 0)
    return errno.errorcode[ctypes.get_errno()] if child < 0 else "allowed"
contain.confine(bytes.fromhex("{code.hex()}"))
for namespace in (0, 0x1000_0000, 0x4000_0000):
    print(ask({numbers["clone"]}, signal.SIGCHLD | namespace))
print(ask({numbers["clone3"]}, 0), ask({numbers["unshare"]}, 0x1000_0000))
"""
    done = subprocess.run([sys.executable, "-c", attempt], capture_output=True, text=True, check=False)
    # A plain process; one with users of its own, and one with a network; what no filter can look into; unshare.
    assert done.stdout.split() == ["allowed", "EPERM", "EPERM", "ENOSYS", "EPERM"], done.stderr


def test_a_call_that_the_profile_does_not_allow_ends_the_program(site: Callable[[str], Site]) -> None:
    dev = site("dev")
    start_node(dev)
    profile = dev.node_files / "var/lib/kubelet/seccomp/firsthop/relay.json"
    content = json.loads(profile.read_text())
    for rule in content["syscalls"]:
        rule["names"] = [one for one in rule["names"] if one != "io_uring_setup"]
    profile.write_text(json.dumps(content))
    relay = dev.start("relay", "preflight", dev.place("relay"))
    assert relay.wait(READY_SECONDS) == -signal.SIGSYS
