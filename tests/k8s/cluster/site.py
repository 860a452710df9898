"""A node, its pods and a client as network namespaces on one wire, with the addresses that a site's manifests name.

Pods are started one by one, each container exactly as the kubelet would have it: see `pods`. Nothing is rewritten but
what the manifests leave to the cluster: the pod's and the node's own address.
"""

import http.client
import ipaddress
import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from firsthop.namespaces import Namespace, give_address, ip, join
from firsthop.processes import Program
from firsthop.stack import READY_SECONDS

from . import contain, manifests, pods, policies, seccomp
from .manifests import Container, Object
from .pods import Host

#: What a container runtime's unit has by default: the kernel's own limit, 8 MiB.
MEMLOCK = 8 << 20

#: Where the client is: outside of every network of ours.
CLIENT = "198.18.0.2"


class Site:
    """One node of a site, with what runs on it."""

    def __init__(self, overlay: str, secrets: dict[str, dict[str, bytes]], images: Path, scratch: Path) -> None:
        self.objects = manifests.render(overlay)
        self.settings = manifests.site(self.objects)
        self.programs: list[Program] = []
        self._secrets, self._images, self._scratch = secrets, images, scratch
        self._numbers = itertools.count(1)
        self._made: list[Namespace] = []
        #: The volumes of each container that was started, by their names in a folder.
        self._volumes: list[tuple[Container, Path]] = []
        #: Pods with addresses of their own.
        self._placed: list[tuple[str, Namespace, str]] = []
        #: Whether a system call that a profile does not allow ends the program, so that none is denied without anybody
        #: noticing. A runtime lets it fail.
        self.strict = True
        self.node_files = scratch / "node"
        self.node_files.mkdir(parents=True)
        #: What the cluster's name server knows.
        self.names: dict[str, str] = {}
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    def _build(self) -> None:
        self._wire = self._namespace("wire")
        ip("-n", self._wire.name, "link", "add", "wire", "type", "bridge")
        ip("-n", self._wire.name, "link", "set", "wire", "up")
        internal = [ipaddress.ip_network(one) for one in self.settings["INTERNAL_NETWORKS"].split(",")]
        # An edge site has no pods to speak of, and no policy that names its nodes' network: it is the last one there.
        nodes = ipaddress.ip_network(self.settings.get("NODE_NETWORK", internal[-1]))
        self.node_ip = str(nodes[4])
        self._pod_ips = (str(one) for one in internal[-1].hosts())
        self.node = self._join("node", self.node_ip)
        self.client = self._join("client", CLIENT)
        self._lead_public_address()

    def _namespace(self, role: str) -> Namespace:
        made = Namespace(role)
        self._made.append(made)
        return made

    def _join(self, role: str, address: str) -> Namespace:
        made = self._namespace(role)
        port = f"port{next(self._numbers)}"
        join(made, "eth0", self._wire, port)
        ip("-n", self._wire.name, "link", "set", port, "master", "wire")
        give_address(made, "eth0", f"{address}/32")
        # Everybody is on this wire.
        ip("-n", made.name, "route", "add", "default", "dev", "eth0", "src", address)
        return made

    def _lead_public_address(self) -> None:
        """Does what a balancer or kube-proxy does: leads the public address to the node's, and keeps the client's."""
        public = self.settings.get("PUBLIC_ADDRESS")
        if public is None:
            return
        address, port = public.split(":")
        give_address(self.node, "lo", f"{address}/32")
        rules = f"""
            table ip balancer {{
                chain arriving {{
                    type nat hook prerouting priority dstnat
                    ip daddr {address} udp dport {port} dnat to {self.node_ip}:{port}
                }}
            }}
        """
        self.node.check("nft", "-f", "-", stdin=rules)

    def start_proxy(self, address: str, port: int) -> str:
        """Does what an ingress controller does: takes requests in PROXY_NETWORK, and asks a pod itself.

        Returns its address, where it takes them on port 80.
        """
        own = str(ipaddress.ip_network(self.settings["PROXY_NETWORK"])[10])
        proxy = self._join("proxy", own)
        proxy.set_kernel("net/ipv4/ip_forward", "1")
        rules = f"""
            table ip proxy {{
                chain arriving {{
                    type nat hook prerouting priority dstnat
                    ip daddr {own} tcp dport 80 dnat to {address}:{port}
                }}
                chain leaving {{
                    type nat hook postrouting priority srcnat
                    masquerade
                }}
            }}
        """
        proxy.check("nft", "-f", "-", stdin=rules)
        return own

    def enforce_policies(self) -> None:
        """Has every pod with an address of its own keep to the site's policies, as far as pods are placed by now."""
        labels = {
            one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"]
            for one in manifests.workloads(self.objects)
        }
        pods_here = [(labels[name], address) for name, _, address in self._placed]
        for name, namespace, _ in self._placed:
            namespace.check("nft", "-f", "-", stdin=policies.rules(self.objects, labels[name], pods_here, self.node_ip))

    def refused(self, namespace: Namespace, way: str) -> int:
        """How many packets of a pod its policies have refused; `way` is input or output."""
        line = namespace.check("nft", "list", "counter", "inet", "cluster", f"refused_{way}")
        return int(line.split("packets")[1].split()[0])

    def place(self, workload: str) -> tuple[Namespace, str]:
        """Where a pod of a workload runs, and its address: the node, or a namespace of its own."""
        pod = manifests.pod_of(
            next(one for one in manifests.workloads(self.objects) if one["metadata"]["name"] == workload)
        )
        if pod.get("hostNetwork"):
            return self.node, self.node_ip
        address = next(self._pod_ips)
        namespace = self._join(workload, address)
        self._placed.append((workload, namespace, address))
        return namespace, address

    def start(self, workload: str, name: str, place: tuple[Namespace, str], again: str = "") -> Program:
        """Starts a container of a workload. `again` tells a second one of a workload apart."""
        container = manifests.container(self.objects, workload, name)
        namespace, address = place
        label = f"{workload}-{name}{again}"
        scratch = self._scratch / label
        host = Host(self.objects, self._secrets, self.node_ip, address, self.node_files)
        prepared = pods.prepare(container, host, scratch / "volumes")
        self._volumes.append((container, scratch / "volumes"))
        spec = scratch / "spec.json"
        spec.write_text(json.dumps(self._spec(container, prepared, scratch)))
        command = namespace.command(sys.executable, contain.__file__, spec)
        program = Program(label, command, self.log(label))
        self.programs.append(program)
        return program

    def set_secret(self, name: str, files: dict[str, bytes]) -> None:
        """Gives a Secret new content, also in the pods that run: their kubelets write it into the volumes."""
        self._secrets = {**self._secrets, name: files}
        for container, scratch in self._volumes:
            for volume in container.pod.get("volumes", []):
                source = volume.get("secret", {})
                # Not every container of a pod mounts all of its volumes.
                if source.get("secretName") == name and (scratch / volume["name"]).exists():
                    group = container.pod["securityContext"]["fsGroup"]
                    pods.publish(scratch / volume["name"], files, source["defaultMode"], group)

    def _spec(self, container: Container, prepared: pods.Prepared, scratch: Path) -> Object:
        root = self._root(container, scratch)
        mounts = [*prepared.mounts, pods.Mount(self._hosts(scratch), "/etc/hosts", True)]
        for mount in mounts:
            # A runtime makes the places at which it mounts.
            place = Path(root + mount.target)
            if mount.source.is_dir():
                place.mkdir(parents=True, exist_ok=True)
            else:
                place.touch()
        otherwise = seccomp.KILL_PROCESS if self.strict else seccomp.NOT_PERMITTED
        code = seccomp.program(prepared.seccomp, otherwise) if prepared.seccomp else b""
        return {
            "root": root,
            "mounts": [{"source": str(m.source), "target": m.target, "read_only": m.read_only} for m in mounts],
            "read_only": prepared.read_only,
            "uid": prepared.uid,
            "gid": prepared.gid,
            "memlock": MEMLOCK,
            "no_new_privileges": prepared.no_new_privileges,
            "seccomp": code.hex(),
            "argv": prepared.argv,
            "environment": prepared.environment,
        }

    def _root(self, container: Container, scratch: Path) -> str:
        """A copy of the image's root."""
        root = scratch / "root"
        image = container.spec["image"].rsplit("/", 1)[-1].split(":")[0]
        # Hard links: the programs are large, and nobody may write to them.
        shutil.copytree(self._images / image, root, symlinks=True, copy_function=os.link)
        return str(root)

    def _hosts(self, scratch: Path) -> Path:
        path = scratch / "hosts"
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in self.names.items())]
        path.write_text("\n".join(lines) + "\n")
        return path

    def log(self, name: str) -> Path:
        """The file of a program's log."""
        return self._scratch / f"{name}.log"

    def run(self, workload: str, name: str, place: tuple[Namespace, str]) -> Program:
        """Runs a container that ends by itself, and well."""
        program = self.start(workload, name, place)
        status = program.wait(READY_SECONDS)
        assert status == 0, f"{program.name} ended with {status}: {program.text()}"
        return program

    def get(self, namespace: Namespace, address: str, port: int, path: str, patience: float = 10) -> int:
        """The status of an HTTP page, as a probe sees it; 0 when nobody answers within `patience` seconds."""

        def ask() -> int:
            connection = http.client.HTTPConnection(address, port, timeout=patience)
            try:
                connection.request("GET", path)
                return connection.getresponse().status
            except (OSError, http.client.HTTPException):
                return 0
            finally:
                connection.close()

        return namespace.call(ask)

    def close(self) -> None:
        """Ends what still runs, and removes the namespaces."""
        for program in self.programs:
            program.kill()
        while self._made:
            self._made.pop().delete()


def build_images(binaries: Path, folder: Path) -> Path:
    """The roots of all images, by name; busybox, of which node-setup is made, is Debian's."""
    for name in ("relay", "transceiver", "signaling"):
        done = subprocess.run(
            [manifests.REPOSITORY / "scripts/rootfs", name, folder / name, binaries],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    box = folder / "busybox"
    for name in ("bin", "dev", "etc", "proc", "sys", "tmp"):
        (box / name).mkdir(parents=True)
    shutil.copy("/usr/bin/busybox" if os.path.exists("/usr/bin/busybox") else "/bin/busybox", box / "bin/busybox")
    subprocess.run([box / "bin/busybox", "--install", "-s", box / "bin"], check=True)
    for link in (box / "bin").iterdir():
        if link.is_symlink():
            link.unlink()
            link.symlink_to("busybox")
    return folder
