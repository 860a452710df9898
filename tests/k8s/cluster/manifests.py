"""The overlays, rendered by the kubectl of the lock file."""

import functools
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[3]
K8S = REPOSITORY / "k8s"
#: Beside the Python that runs the tests: both come from the lock file.
KUBECTL = Path(sys.executable).parent / "kubectl"

Object = dict[str, Any]

#: Which part of an object holds pods.
WORKLOADS = ("DaemonSet", "Deployment")


def overlays() -> list[str]:
    """The overlays, by their folders below `k8s/overlays`."""
    found = []
    for path in sorted((K8S / "overlays").rglob("kustomization.yaml")):
        if yaml.safe_load(path.read_text())["kind"] == "Kustomization":
            found.append(str(path.parent.relative_to(K8S / "overlays")))
    return found


@functools.cache
def render(overlay: str) -> list[Object]:
    """The objects of an overlay."""
    return render_folder(K8S / "overlays" / overlay)


def render_folder(folder: Path) -> list[Object]:
    """The objects of a folder with a kustomization."""
    done = subprocess.run([KUBECTL, "kustomize", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{folder}: {done.stderr}"
    # Nothing that is obsolete, and nothing that was overlooked.
    assert done.stderr == "", f"{folder}: {done.stderr}"
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def named(objects: list[Object], kind: str, name: str) -> Object:
    """The one object of a kind and name."""
    found = [one for one in objects if one["kind"] == kind and one["metadata"]["name"] == name]
    assert len(found) == 1, f"{len(found)} of {kind} {name}"
    return found[0]


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    """All objects of a kind."""
    return [one for one in objects if one["kind"] == kind]


def site(objects: list[Object]) -> dict[str, str]:
    """What the site has set: its site.env, whose ConfigMap has a name that changes with it."""
    found = [one for one in of_kind(objects, "ConfigMap") if one["metadata"]["name"].startswith("site-")]
    assert len(found) == 1
    return dict(found[0]["data"])


@dataclass(frozen=True)
class Container:
    """A container of a workload's pod template."""

    workload: Object
    spec: Object
    init: bool

    @property
    def name(self) -> str:
        """Workload and container."""
        return f"{self.workload['kind']}/{self.workload['metadata']['name']}/{self.spec['name']}"

    @property
    def pod(self) -> Object:
        """The pod's spec."""
        return pod_of(self.workload)

    def variables(self) -> list[str]:
        """The names of its environment variables, in their order."""
        return [one["name"] for one in self.spec.get("env", [])]


def pod_of(workload: Object) -> Object:
    """The spec of a workload's pods."""
    return dict(workload["spec"]["template"]["spec"])


def workloads(objects: list[Object]) -> list[Object]:
    """What runs pods."""
    return [one for one in objects if one["kind"] in WORKLOADS]


def containers(objects: list[Object]) -> Iterator[Container]:
    """Every container, of initialisation and others."""
    for workload in workloads(objects):
        pod = pod_of(workload)
        for init, key in ((True, "initContainers"), (False, "containers")):
            for spec in pod.get(key, []):
                yield Container(workload, spec, init)


def container(objects: list[Object], workload: str, name: str) -> Container:
    """One container."""
    found = [
        one for one in containers(objects) if one.workload["metadata"]["name"] == workload and one.spec["name"] == name
    ]
    assert len(found) == 1, f"{len(found)} of {workload}/{name}"
    return found[0]
