"""Every overlay is rendered, and what comes of it is valid by the schemas of a named version of Kubernetes."""

import base64
import os
import re
import subprocess
import textwrap
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from cluster import manifests
from cluster.manifests import Object

#: The oldest that the manifests are for (`preStop.sleep`), and the newest whose schemas the locked package has.
VERSIONS = ("1.30", "1.37")

#: Objects of others, whose schemas no release of Kubernetes has, with what must be in their specs.
FOREIGN = {
    ("metallb.io/v1beta1", "IPAddressPool"): {"addresses"},
    ("metallb.io/v1beta2", "BGPPeer"): {"myASN", "peerASN", "peerAddress"},
    ("metallb.io/v1beta1", "BGPAdvertisement"): {"ipAddressPools"},
}


def test_the_overlays_are_those_of_the_guide() -> None:
    found = manifests.overlays()
    assert found == ["dev", "edge", "global/frankfurt", "global/tokyo", "global/virginia", "region"]
    guide = (manifests.K8S / "README.md").read_text()
    for name in ("dev", "region", "edge", "global"):
        assert f"| `{name}` |" in guide


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("overlay", manifests.overlays())
def test_every_object_is_valid(overlay: str, version: str) -> None:
    checked = 0
    for one in manifests.render(overlay):
        foreign = FOREIGN.get((one["apiVersion"], one["kind"]))
        if foreign is not None:
            assert foreign <= set(one["spec"]), one
            continue
        kubernetes_validate.validate(one, version, strict=True)
        checked += 1
    assert checked > 5


@pytest.mark.parametrize("version", VERSIONS)
def test_the_schemas_find_what_is_wrong(version: str) -> None:
    good = manifests.named(manifests.render("dev"), "DaemonSet", "relay")
    for spoil in (_misspell, _mistype):
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(spoil(good), version, strict=True)


def _misspell(one: Object) -> Object:
    return {**one, "spec": {**one["spec"], "minReadySecond": 1}}


def _mistype(one: Object) -> Object:
    return {**one, "spec": {**one["spec"], "minReadySeconds": "soon"}}


@pytest.mark.parametrize("overlay", manifests.overlays())
def test_what_a_site_sets_is_everywhere_it_belongs(overlay: str) -> None:
    objects = manifests.render(overlay)
    text = str(objects)
    for left in ("192.0.2.", "unset", ".invalid"):
        assert left not in text, f"{left} is a place that nobody has filled"
    settings = manifests.site(objects)
    used = {
        source["key"]
        for container in manifests.containers(objects)
        for one in container.spec.get("env", [])
        if (source := one.get("valueFrom", {}).get("configMapKeyRef"))
    }
    # What no program reads is in a field of an object.
    for key, value in settings.items():
        assert value, f"{key} is empty"
        others = [one for one in objects if one["kind"] != "ConfigMap"]
        assert key in used or re.split("[,:]", value)[0] in str(others), f"{key} is set and never used"


@pytest.fixture
def observed(tmp_path: Path) -> list[Object]:
    """The objects that `k8s/observability` adds to an overlay."""
    # Components are named by relative paths alone.
    path = os.path.relpath(manifests.K8S / "observability", tmp_path)
    text = f"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\ncomponents: [{path}]\n"
    (tmp_path / "kustomization.yaml").write_text(text)
    return manifests.render_folder(tmp_path)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_observes_is_valid(observed: list[Object], version: str) -> None:
    for one in observed:
        kubernetes_validate.validate(one, version, strict=True)


def test_prometheus_looks_for_pods_where_it_may(observed: list[Object]) -> None:
    config = manifests.named(observed, "ConfigMap", "firsthop-prometheus")
    (job,) = yaml.safe_load(config["data"]["scrape-pods.yaml"])["scrape_configs"]
    (wanted,) = job["kubernetes_sd_configs"]
    role = manifests.named(observed, "Role", "prometheus-pods")
    assert wanted == {"role": "pod", "namespaces": {"names": [role["metadata"]["namespace"]]}}
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    binding = manifests.named(observed, "RoleBinding", "prometheus-pods")
    assert binding["metadata"]["namespace"] == role["metadata"]["namespace"]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [one["namespace"] for one in binding["subjects"]] == [config["metadata"]["namespace"]]


def test_prometheus_of_the_operator_gets_the_same_jobs_and_rules(tmp_path: Path) -> None:
    guide = (manifests.K8S / "README.md").read_text()
    block = re.search(r"<!-- operator -->\n *```sh\n(.*?)^ *```", guide, re.DOTALL | re.MULTILINE)
    assert block, "k8s/README.md says how the operator's Prometheus gets them"
    # Nothing is sent to a cluster, and nothing is written in the repository.
    (tmp_path / "k8s").symlink_to(manifests.K8S)
    kubectl = f'kubectl() {{ if [ "$1" = apply ]; then cat; echo ---; else "{manifests.KUBECTL}" "$@"; fi; }}'
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"{kubectl}\n{textwrap.dedent(block[1])}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    secret, rule = (one for one in yaml.safe_load_all(done.stdout) if one)
    assert (secret["metadata"]["name"], secret["metadata"]["namespace"]) == ("firsthop-scrape", "monitoring")
    observability = manifests.K8S / "observability"
    jobs = yaml.safe_load(base64.b64decode(secret["data"]["jobs.yaml"]))
    assert jobs == yaml.safe_load((observability / "scrape-pods.yaml").read_text())["scrape_configs"]
    assert (rule["apiVersion"], rule["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert rule["spec"] == yaml.safe_load((observability / "alerts.yaml").read_text())
    assert len(rule["spec"]["groups"]) > 0


def test_all_sites_of_a_fleet_have_the_same_fleet_file() -> None:
    sites = [manifests.render(one) for one in manifests.overlays() if one.startswith("global/")]
    assert len({str(manifests.named(objects, "ConfigMap", "fleet")["data"]) for objects in sites}) == 1
    clusters = [manifests.site(objects)["CLUSTER"] for objects in sites]
    assert len(set(clusters)) == len(sites)
