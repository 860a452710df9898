"""What the manifests and Dockerfiles say of the programs is so: names of settings, ports, pages, metrics, images."""

import ipaddress
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from cluster import images, manifests
from cluster.manifests import Container

overlay = pytest.mark.parametrize("overlay", manifests.overlays())
OURS = ("relay", "preflight", "transceiver", "signaling")


def settings(binaries: Path, program: str) -> set[str]:
    """The environment variables that a program reads, as its help says."""
    help_text = subprocess.run([binaries / program, "--help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"\[env: (FIRSTHOP_\w+)", help_text))


def _ours(overlay: str) -> list[Container]:
    return [one for one in manifests.containers(manifests.render(overlay)) if one.spec["name"] in OURS]


@overlay
def test_every_variable_is_a_setting_of_its_program(overlay: str, binaries: Path) -> None:
    checked = set()
    for one in _ours(overlay):
        known = settings(binaries, one.spec["name"])
        assert len(known) >= 2, one.name
        for variable in one.variables():
            if variable.startswith("FIRSTHOP_"):
                assert variable in known, f"{one.name} has no setting {variable}"
            else:
                # Somebody refers to it, or it is a slip.
                assert f"$({variable})" in str(one.spec["env"]), f"{one.name}: nobody uses {variable}"
        checked.add(one.spec["name"])
    assert {"relay", "preflight"} <= checked


def test_a_setting_that_there_is_not_would_be_found(binaries: Path) -> None:
    assert "FIRSTHOP_HANDED_OVER" in settings(binaries, "relay")
    assert "FIRSTHOP_HANDED_OVER" not in settings(binaries, "signaling")


def _port(container: Container, variable: str) -> int:
    (value,) = [one["value"] for one in container.spec["env"] if one["name"] == variable]
    return int(value.rsplit(":", 1)[-1])


@overlay
def test_ports_are_the_same_wherever_they_stand(overlay: str) -> None:
    objects = manifests.render(overlay)
    probed = {"relay": "FIRSTHOP_ADMIN", "transceiver": "FIRSTHOP_CONTROL", "signaling": "FIRSTHOP_LISTEN"}
    scraped = {**probed, "signaling": "FIRSTHOP_METRICS"}
    for one in _ours(overlay):
        name = one.spec["name"]
        if one.init:
            continue
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert one.spec[probe]["httpGet"]["port"] == _port(one, probed[name]), (one.name, probe)
        annotations = one.workload["spec"]["template"]["metadata"]["annotations"]
        assert int(annotations["prometheus.io/port"]) == _port(one, scraped[name])
    for service in manifests.of_kind(objects, "Service"):
        name = service["metadata"]["name"]
        (port,) = service["spec"]["ports"]
        if name in probed and name != "relay":
            assert port["targetPort"] == _port(manifests.container(objects, name, name), probed[name])
        elif name == "relay":
            assert port["targetPort"] == 3478
            assert manifests.site(objects)["PUBLIC_ADDRESS"].endswith(f":{port['port']}")


def test_traces_go_to_the_sites_collector(binaries: Path, tmp_path: Path) -> None:
    def up(path: str) -> str:
        return os.path.relpath(manifests.K8S / path, tmp_path.resolve())

    chosen = ["COLLECTOR=http://198.51.100.7:14318", "COLLECTOR_PORT=14318", "COLLECTOR_NETWORK=198.51.100.7/32"]
    chosen.append("TRACE_SAMPLE=0.01")
    site = {"name": "site", "namespace": "firsthop", "behavior": "merge", "literals": chosen}
    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [up("overlays/region")],
        "configMapGenerator": [site],
        "components": [up("components/traces")],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    objects = manifests.render_folder(tmp_path)
    for name in ("signaling", "transceiver"):
        variables = {
            one["name"]: one["valueFrom"]
            for one in manifests.container(objects, name, name).spec["env"]
            if one["name"].startswith("OTEL_") or one["name"] == "FIRSTHOP_TRACE_SAMPLE"
        }
        endpoint = variables["OTEL_EXPORTER_OTLP_ENDPOINT"]["configMapKeyRef"]
        assert (
            manifests.named(objects, "ConfigMap", endpoint["name"])["data"][endpoint["key"]] == chosen[0].split("=")[1]
        )
        help_text = subprocess.run([binaries / name, "--help"], capture_output=True, text=True, check=True).stdout
        assert "[env: OTEL_EXPORTER_OTLP_ENDPOINT" in help_text
        # Whoever decides which calls are traced.
        assert ("FIRSTHOP_TRACE_SAMPLE" in variables) == ("FIRSTHOP_TRACE_SAMPLE" in settings(binaries, name))
        policy = manifests.named(objects, "NetworkPolicy", f"{name}-to-collector")["spec"]
        assert policy["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": name}
        (rule,) = policy["egress"]
        assert rule["to"] == [{"ipBlock": {"cidr": "198.51.100.7/32"}}]
        assert rule["ports"] == [{"port": 14318, "protocol": "TCP"}]


@overlay
def test_the_fleet_file_fits_the_site(overlay: str) -> None:
    objects = manifests.render(overlay)
    settings = manifests.site(objects)
    fleet = tomllib.loads(manifests.named(objects, "ConfigMap", "fleet")["data"]["fleet.toml"])
    (cluster,) = [one for one in fleet["cluster"] if str(one["id"]) == settings["CLUSTER"]]
    relay = manifests.container(objects, "relay", "relay")
    assert {one["cores"] for one in cluster["relays"]} == {int(relay.spec["resources"]["limits"]["cpu"])}
    internal = [ipaddress.ip_network(one) for one in settings["INTERNAL_NETWORKS"].split(",")]
    for one in cluster["relays"]:
        assert any(ipaddress.ip_address(one["address"]) in network for network in internal)
    if "PUBLIC_ADDRESS" in settings:
        assert settings["PUBLIC_ADDRESS"] in {one["ipv4"] for one in fleet["ingress"]}
    if "HOST" in settings and "signaling" in cluster:
        assert cluster["signaling"] == f"https://{settings['HOST']}"


@pytest.mark.parametrize("path", images.dockerfiles(), ids=lambda path: path.stem)
def test_an_image_is_small_and_of_nobody_in_particular(path: Path) -> None:
    name = path.name.split(".")[0]
    image = images.read(name)
    text = path.read_text()
    assert re.search(r"distroless|scratch", image.base)
    assert image.user == (65532, 65532)
    assert image.entrypoint == [f"/usr/local/bin/{name}"]
    assert name in image.programs
    # The toolchain is the one that the repository names.
    channel = tomllib.loads((manifests.REPOSITORY / "rust-toolchain.toml").read_text())["toolchain"]["channel"]
    assert f"FROM rust:{channel}-" in text
    assert "--locked" in text
    # Where it is built, the commit is unknown unless somebody says it: before the build, in the stage of the build.
    assert "\nARG FIRSTHOP_COMMIT\n" in text.split("cargo build")[0]
    # The last stage copies the programs, and nothing else.
    last = text.split("\nFROM ")[-1]
    assert re.findall(r"^(?:COPY|ADD|RUN).*$", last, re.MULTILINE) == ["COPY --from=build /src/bin/ /usr/local/bin/"]


def test_no_key_and_no_build_gets_into_an_image() -> None:
    ignored = (manifests.REPOSITORY / ".dockerignore").read_text().split("\n")
    assert {".git", ".firsthop", "target"} <= set(ignored)


@overlay
def test_containers_run_as_their_image_does(overlay: str) -> None:
    for one in _ours(overlay):
        image = images.read(one.spec["image"].rsplit("/", 1)[-1].split(":")[0])
        context = one.pod["securityContext"]
        assert (context["runAsUser"], context["runAsGroup"]) == image.user, one.name
        command = one.spec.get("command", image.entrypoint)
        assert command[0].removeprefix("/usr/local/bin/") in image.programs, one.name


@pytest.mark.skipif(os.geteuid() != 0, reason="scripts/rootfs gives files their modes as root")
def test_a_root_file_system_has_what_its_image_has_and_no_shell(images: Path) -> None:
    for name in ("relay", "transceiver", "signaling"):
        root = images / name
        files = {str(one.relative_to(root)) for one in root.rglob("*") if one.is_file()}
        assert f"usr/local/bin/{name}" in files
        assert "etc/ssl/certs/ca-certificates.crt" in files
        assert not any(one.endswith(("/sh", "/bash", "/busybox")) for one in files)
        assert len(files) < 20, sorted(files)


def test_the_autoscalers_metric_is_one_that_the_adapter_makes() -> None:
    adapter = yaml.safe_load((manifests.K8S / "adapter.yaml").read_text())
    made = {one["name"]["as"] for one in adapter["rules"]["custom"]}
    # The adapter goes by labels that no program sets: whoever scrapes must.
    scrape = yaml.safe_load((manifests.K8S / "observability/scrape-pods.yaml").read_text())
    (job,) = scrape["scrape_configs"]
    labels = {one["target_label"] for one in job["relabel_configs"] if "target_label" in one}
    for rule in adapter["rules"]["custom"]:
        asked = re.findall(r"(\w+)!?=", rule["seriesQuery"])
        assert asked
        assert {*asked, *rule["resources"]["overrides"]} <= labels, "the scrape job sets no such label"
    scaler = manifests.named(manifests.render("region"), "HorizontalPodAutoscaler", "transceiver")
    assert {one["pods"]["metric"]["name"] for one in scaler["spec"]["metrics"]} <= made
