"""What a kubelet makes of a container: its arguments, environment, mounts and user."""

import base64
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from . import images
from .manifests import Container, Object, named

_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][\w.-]*)\)")
_UNITS = {"m": 0.001, "": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def quantity(text: str) -> float:
    """A quantity such as 250m, 2 or 1Gi, in its unit (processors, bytes)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(m|Ki|Mi|Gi|)", str(text))
    assert match, f"'{text}' is no quantity"
    return float(match[1]) * _UNITS[match[2]]


@dataclass
class Host:
    """Where a pod runs, and what the cluster has for it."""

    objects: list[Object]
    #: By name, then by key.
    secrets: dict[str, dict[str, bytes]]
    node_ip: str
    pod_ip: str
    #: The node's own files, which hostPath volumes show.
    files: Path

    def config_map(self, name: str) -> dict[str, str]:
        """The data of a ConfigMap."""
        return dict(named(self.objects, "ConfigMap", name)["data"])


@dataclass
class Mount:
    """A folder that a container sees."""

    source: Path
    target: str
    read_only: bool


@dataclass
class Prepared:
    """A container, as the runtime is asked for it."""

    argv: list[str]
    environment: dict[str, str]
    mounts: list[Mount] = field(default_factory=list)
    uid: int = 0
    gid: int = 0
    seccomp: Path | None = None
    read_only: bool = False
    no_new_privileges: bool = False


def environment(container: Container, host: Host) -> dict[str, str]:
    """The variables of a container, as the kubelet resolves them: each may refer to those before it."""
    known: dict[str, str] = {}
    for one in container.spec.get("env", []):
        value = _value(one, container, host)
        if value is None:
            continue
        known[one["name"]] = value
    return known


def expand(text: str, known: dict[str, str]) -> str:
    """Replaces $(NAME). The kubelet leaves a name that it does not know as it stands; here that is a fault."""

    def one(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        assert match[1] in known, f"{match[0]} in '{text}' is not known there: a variable must stand before it is used"
        return known[match[1]]

    return _REFERENCE.sub(one, text)


def _value(one: Object, container: Container, host: Host) -> str | None:
    if "value" in one:
        before = {}
        for other in container.spec["env"]:
            if other["name"] == one["name"]:
                break
            found = _value(other, container, host)
            if found is not None:
                before[other["name"]] = found
        return expand(one["value"], before)
    (kind, source), *more = one["valueFrom"].items()
    assert not more, one
    if kind == "configMapKeyRef":
        return host.config_map(source["name"])[source["key"]]
    if kind == "secretKeyRef":
        secret = host.secrets.get(source["name"])
        assert secret is not None or source.get("optional"), f"there is no Secret {source['name']}"
        return None if secret is None else secret[source["key"]].decode()
    if kind == "fieldRef":
        return {"status.hostIP": host.node_ip, "status.podIP": host.pod_ip}[source["fieldPath"]]
    assert kind == "resourceFieldRef", one
    return _resource(source, container)


def _resource(source: Object, container: Container) -> str:
    every = [*container.pod.get("initContainers", []), *container.pod["containers"]]
    (meant,) = [spec for spec in every if spec["name"] == source.get("containerName", container.spec["name"])]
    which, name = source["resource"].split(".")
    return str(math.ceil(quantity(meant["resources"][which][name]) / quantity(source.get("divisor", "1"))))


def prepare(container: Container, host: Host, scratch: Path) -> Prepared:
    """What the runtime is asked for. Files of ConfigMaps and Secrets are written below `scratch`."""
    spec, pod = container.spec, container.pod
    known = environment(container, host)
    image = spec["image"].rsplit("/", 1)[-1].split(":")[0]
    ours = image in ("relay", "transceiver", "signaling")
    command = spec.get("command") or (images.read(image).entrypoint if ours else [])
    context = {**pod.get("securityContext", {}), **spec.get("securityContext", {})}
    prepared = Prepared(
        [expand(one, known) for one in [*command, *spec.get("args", [])]],
        known,
        _mounts(container, host, scratch, context.get("fsGroup", 0)),
        context["runAsUser"],
        context["runAsGroup"],
        read_only=context.get("readOnlyRootFilesystem", False),
        no_new_privileges=not context.get("allowPrivilegeEscalation", True),
    )
    profile = context["seccompProfile"]
    if profile["type"] == "Localhost":
        prepared.seccomp = host.files / "var/lib/kubelet/seccomp" / profile["localhostProfile"]
    return prepared


def _mounts(container: Container, host: Host, scratch: Path, group: int) -> list[Mount]:
    volumes = {one["name"]: one for one in container.pod.get("volumes", [])}
    mounts = []
    for mount in container.spec.get("volumeMounts", []):
        source = _volume(volumes[mount["name"]], host, scratch, group)
        mounts.append(Mount(source, mount["mountPath"], mount.get("readOnly", False)))
    return mounts


def _volume(volume: Object, host: Host, scratch: Path, group: int) -> Path:
    if "hostPath" in volume:
        path = host.files / volume["hostPath"]["path"].lstrip("/")
        if volume["hostPath"]["type"] == "DirectoryOrCreate":
            path.mkdir(parents=True, exist_ok=True)
        assert path.is_dir(), f"there is no {volume['hostPath']['path']} on the node"
        return path
    folder = scratch / volume["name"]
    folder.mkdir(parents=True, exist_ok=True)
    if "configMap" in volume:
        publish(folder, host.config_map(volume["configMap"]["name"]), 0o644, group)
    elif "secret" in volume:
        source = volume["secret"]
        publish(folder, host.secrets[source["secretName"]], source.get("defaultMode", 0o644), group)
    else:
        folder.chmod(0o777)
    return folder


def publish(folder: Path, files: Mapping[str, str | bytes], mode: int, group: int) -> None:
    """Writes the files of a ConfigMap or Secret as a kubelet does: all change at once, when a link is replaced.

    What a Secret has is the pod's group's to read, if there is one.
    """
    version = folder / f"..version-{len(list(folder.glob('..version-*')))}"
    version.mkdir(mode=0o755)
    for name, content in files.items():
        path = version / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(mode)
        os.chown(path, 0, group)
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    link = folder / "..data_tmp"
    link.symlink_to(version.name)
    link.rename(folder / "..data")


def secrets(objects: list[Object]) -> dict[str, dict[str, bytes]]:
    """The data of Secrets, by name."""
    return {
        one["metadata"]["name"]: {key: base64.b64decode(value) for key, value in one.get("data", {}).items()}
        for one in objects
    }
