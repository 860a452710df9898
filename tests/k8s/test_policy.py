"""What must hold for whatever is rendered: rights, resources, probes, networks, ends."""

import ipaddress
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from cluster import manifests, pods
from cluster.manifests import Container, Object

overlay = pytest.mark.parametrize("overlay", manifests.overlays())
#: The one container that is root: it writes the kubelet's folder, which is root's.
ROOT = "DaemonSet/node-setup/setup"
#: The sites that are more than relays.
WITH_SIGNALING = [one for one in manifests.overlays() if one not in ("edge", "global/tokyo")]


def _containers(overlay: str) -> list[Container]:
    return list(manifests.containers(manifests.render(overlay)))


@overlay
def test_nothing_is_privileged(overlay: str) -> None:
    for one in _containers(overlay):
        context = {**one.pod.get("securityContext", {}), **one.spec.get("securityContext", {})}
        assert context.get("privileged") is False, one.name
        assert context.get("allowPrivilegeEscalation") is False, one.name
        assert context.get("readOnlyRootFilesystem") is True, one.name
        assert context["capabilities"] == {"drop": ["ALL"]}, one.name
        assert context["seccompProfile"]["type"] in ("RuntimeDefault", "Localhost"), one.name
        if one.name == ROOT:
            continue
        assert context.get("runAsNonRoot") is True, one.name
        assert context["runAsUser"] > 0, one.name
        assert context["runAsGroup"] > 0, one.name
    for pod in map(manifests.pod_of, manifests.workloads(manifests.render(overlay))):
        assert pod.get("automountServiceAccountToken") is False
        assert not pod.get("hostPID")
        assert not pod.get("hostIPC")


@overlay
def test_the_host_is_seen_by_those_alone_that_must(overlay: str) -> None:
    seen = {}
    for workload in manifests.workloads(manifests.render(overlay)):
        pod = manifests.pod_of(workload)
        paths = {one["hostPath"]["path"] for one in pod.get("volumes", []) if "hostPath" in one}
        seen[workload["metadata"]["name"]] = (bool(pod.get("hostNetwork")), paths)
    assert seen.pop("relay") == (True, {"/run/firsthop"})
    assert seen.pop("node-setup") == (False, {"/var/lib/kubelet/seccomp/firsthop", "/run/firsthop"})
    assert all(one == (False, set()) for one in seen.values()), seen


@overlay
def test_every_container_says_what_it_takes(overlay: str) -> None:
    for one in _containers(overlay):
        for which in ("requests", "limits"):
            assert set(one.spec["resources"][which]) == {"cpu", "memory"}, one.name
        for what in ("cpu", "memory"):
            least, most = (pods.quantity(one.spec["resources"][which][what]) for which in ("requests", "limits"))
            assert 0 < least <= most, one.name


@overlay
def test_a_relay_has_its_processors_for_itself(overlay: str) -> None:
    # Guaranteed, by all containers of the pod; exclusive, by whole numbers.
    relays = [one for one in _containers(overlay) if one.workload["metadata"]["name"] == "relay"]
    assert {one.spec["name"] for one in relays} == {"relay", "preflight"}
    for one in relays:
        assert one.spec["resources"]["requests"] == one.spec["resources"]["limits"], one.name
        assert pods.quantity(one.spec["resources"]["limits"]["cpu"]).is_integer(), one.name


@overlay
def test_every_program_is_probed(overlay: str) -> None:
    for one in _containers(overlay):
        if one.init:
            continue
        for probe in ("readinessProbe", "livenessProbe"):
            assert probe in one.spec, one.name
        # A program that is slow for a moment must not be killed with its calls.
        alive = one.spec["livenessProbe"]
        assert alive.get("periodSeconds", 10) * alive.get("failureThreshold", 3) >= 30, one.name


@overlay
def test_pods_on_the_host_declare_no_ports(overlay: str) -> None:
    for one in _containers(overlay):
        if one.pod.get("hostNetwork"):
            assert "ports" not in one.spec, f"{one.name}: they become host ports, and no second pod fits beside it"


@overlay
def test_a_relay_is_followed_by_one_that_takes_over(overlay: str) -> None:
    relay = manifests.named(manifests.render(overlay), "DaemonSet", "relay")
    update = relay["spec"]["updateStrategy"]["rollingUpdate"]
    assert (update["maxSurge"], update["maxUnavailable"]) == (1, 0)
    variables = {one["name"]: one.get("value") for one in manifests.container([relay], "relay", "relay").spec["env"]}
    assert variables["FIRSTHOP_TAKEOVER"] == "true"
    assert variables["FIRSTHOP_HANDED_OVER"] == "stay"
    folder, _, _ = variables["FIRSTHOP_HANDOVER"].rpartition("/")
    (mount,) = [
        one for one in manifests.container([relay], "relay", "relay").spec["volumeMounts"] if one["mountPath"] == folder
    ]
    assert not mount.get("readOnly")
    # Old and new share their probes' address: only time tells them apart, when every wait of a hand-over is over. The
    # giver waits for the first word, for the successor's cores, for three steps of each core, and for the last word.
    cores = int(manifests.container([relay], "relay", "relay").spec["resources"]["limits"]["cpu"])
    least = _limit("HANDOVER_ANSWER") + _limit("HANDOVER_PREPARE") + (3 * cores + 1) * _limit("HANDOVER_STEP")
    assert relay["spec"]["minReadySeconds"] > least


def _limit(name: str) -> int:
    """A bound of the relay, in seconds."""
    text = (manifests.REPOSITORY / "relay/src/limits.rs").read_text()
    found = re.search(rf"^pub const {name}: Duration = Duration::from_secs\((\d+)\);$", text, re.MULTILINE)
    assert found, f"relay/src/limits.rs has no {name} in seconds"
    return int(found[1])


@overlay
def test_relays_have_a_priority_that_is_their_own(overlay: str) -> None:
    objects = manifests.render(overlay)
    (priority,) = manifests.of_kind(objects, "PriorityClass")
    # Above 1,000,000,000 are those of the system, which quotas refuse outside of kube-system.
    assert 0 < priority["value"] <= 1_000_000_000
    assert priority["preemptionPolicy"] == "Never"
    for name in ("relay", "node-setup"):
        pod = manifests.pod_of(manifests.named(objects, "DaemonSet", name))
        assert pod["priorityClassName"] == priority["metadata"]["name"]


@overlay
def test_pods_have_the_time_that_their_ends_take(overlay: str) -> None:
    margin = 10
    for one in _containers(overlay):
        if one.init:
            continue
        variables = {each["name"]: each.get("value") for each in one.spec.get("env", [])}
        drain = int(variables.get("FIRSTHOP_DRAIN") or 0)
        stop = one.spec.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        if drain or stop:
            assert one.pod["terminationGracePeriodSeconds"] >= drain + stop + margin, one.name


def test_what_drains_says_for_how_long() -> None:
    objects = manifests.render("region")
    for workload, drains, stops in (("relay", True, False), ("transceiver", True, True), ("signaling", False, True)):
        one = manifests.container(objects, workload, workload)
        assert ("FIRSTHOP_DRAIN" in one.variables()) == drains
        assert ("lifecycle" in one.spec) == stops


def _rules(policy: Object, way: str) -> Iterator[tuple[list[Object], list[Object]]]:
    for rule in policy["spec"].get(way, []):
        yield rule.get("from", rule.get("to", [])), rule.get("ports", [])


@overlay
def test_policies_mean_pods_that_they_can_hold_for(overlay: str) -> None:
    objects = manifests.render(overlay)
    own = {
        workload["metadata"]["name"]: workload["spec"]["template"]["metadata"]["labels"]
        for workload in manifests.workloads(objects)
        if not manifests.pod_of(workload).get("hostNetwork")
    }

    def selects(selector: Object) -> list[str]:
        wanted = selector.get("matchLabels", {}).items()
        return [name for name, labels in own.items() if wanted <= labels.items()]

    for policy in manifests.of_kind(objects, "NetworkPolicy"):
        name = policy["metadata"]["name"]
        assert selects(policy["spec"]["podSelector"]), f"{name} holds for no pod with an address of its own"
        for way in ("ingress", "egress"):
            for peers, ports in _rules(policy, way):
                assert ports, f"{name} opens all ports"
                for peer in peers:
                    # A selector in our namespace must find somebody: host-network pods it cannot.
                    if "podSelector" in peer and "namespaceSelector" not in peer:
                        assert selects(peer["podSelector"]), f"{name}: {peer} means nobody"


@pytest.mark.parametrize("overlay", WITH_SIGNALING)
def test_relays_are_meant_by_the_addresses_of_nodes(overlay: str) -> None:
    objects = manifests.render(overlay)
    nodes = manifests.site(objects)["NODE_NETWORK"]
    internal = [ipaddress.ip_network(one) for one in manifests.site(objects)["INTERNAL_NETWORKS"].split(",")]
    assert any(ipaddress.ip_network(nodes).subnet_of(one) for one in internal)
    policy = manifests.named(objects, "NetworkPolicy", "transceiver")
    trunk = [peers for peers, ports in _rules(policy, "ingress") if {"port": 5000, "protocol": "UDP"} in ports]
    assert trunk == [[{"ipBlock": {"cidr": nodes}}]], "nobody but the nodes speaks the trunk"
    back = [
        (peers, ports[0]["port"], ports[0]["endPort"])
        for peers, ports in _rules(policy, "egress")
        if ports[0]["protocol"] == "UDP" and "endPort" in ports[0]
    ]
    assert back == [([{"ipBlock": {"cidr": nodes}}], 4000, 4063)]


@pytest.mark.parametrize("overlay", WITH_SIGNALING)
def test_signaling_is_reached_by_proxies_alone_and_asks_any_sites_relays(overlay: str) -> None:
    objects = manifests.render(overlay)
    settings = manifests.site(objects)
    proxies = ipaddress.ip_network(settings["PROXY_NETWORK"])
    pod = ipaddress.ip_network(settings["INTERNAL_NETWORKS"].split(",")[-1])
    assert proxies.subnet_of(pod)
    assert proxies != pod, "any pod could say of a client's address what it likes"
    policy = manifests.named(objects, "NetworkPolicy", "signaling")
    inward = [peers for peers, ports in _rules(policy, "ingress") if {"port": 8080, "protocol": "TCP"} in ports]
    assert inward == [[{"ipBlock": {"cidr": settings["PROXY_NETWORK"]}}]]
    outward = [peers for peers, ports in _rules(policy, "egress") if {"port": 9101, "protocol": "TCP"} in ports]
    # Other sites' ingress points are not on this site's nodes.
    assert outward == [[{"ipBlock": {"cidr": "0.0.0.0/0"}}, {"ipBlock": {"cidr": "::/0"}}]]


@pytest.mark.parametrize("overlay", ["region", "global/frankfurt", "global/virginia"])
def test_the_model_servers_port_is_open(overlay: str) -> None:
    objects = manifests.render(overlay)
    url = urlsplit(manifests.site(objects)["MODEL_URL"])
    port = url.port or {"ws": 80, "wss": 443}[url.scheme]
    assert manifests.site(objects)["MODEL_PORT"] == str(port)
    ((peers, ports),) = _rules(manifests.named(objects, "NetworkPolicy", "transceiver-to-model"), "egress")
    assert peers == [{"ipBlock": {"cidr": manifests.site(objects)["MODEL_NETWORK"]}}]
    assert ports == [{"port": port, "protocol": "TCP"}]


@overlay
def test_one_service_account_takes_a_secret_for_the_registry(overlay: str) -> None:
    guide = (manifests.K8S / "README.md").read_text()
    assert 'patch serviceaccount default -p \'{"imagePullSecrets"' in guide
    for pod in map(manifests.pod_of, manifests.workloads(manifests.render(overlay))):
        assert pod.get("serviceAccountName", "default") == "default"
        assert "imagePullSecrets" not in pod, "what the account has would not be added"


@pytest.mark.parametrize("overlay", WITH_SIGNALING)
@pytest.mark.parametrize("name", ["transceiver", "signaling"])
def test_names_are_asked_of_the_cluster_and_of_a_cache_on_the_node(overlay: str, name: str) -> None:
    policy = manifests.named(manifests.render(overlay), "NetworkPolicy", name)
    (peers,) = [peers for peers, ports in _rules(policy, "egress") if {"port": 53, "protocol": "UDP"} in ports]
    assert {"ipBlock": {"cidr": "169.254.0.0/16"}} in peers
    assert any("podSelector" in one for one in peers)


@pytest.mark.parametrize("overlay", WITH_SIGNALING)
def test_no_signaling_pod_leaves_its_service_for_want_of_transceivers(overlay: str) -> None:
    one = manifests.container(manifests.render(overlay), "signaling", "signaling")
    assert one.spec["readinessProbe"]["httpGet"]["path"] == "/healthz"


@overlay
def test_a_pod_without_a_policy_of_its_own_speaks_with_nobody(overlay: str) -> None:
    policy = manifests.named(manifests.render(overlay), "NetworkPolicy", "nobody-else")
    assert policy["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


@overlay
def test_services_lead_to_pods_and_keep_clients_addresses(overlay: str) -> None:
    objects = manifests.render(overlay)
    labels = [one["spec"]["template"]["metadata"]["labels"].items() for one in manifests.workloads(objects)]
    for service in manifests.of_kind(objects, "Service"):
        assert any(service["spec"]["selector"].items() <= one for one in labels)
        if service["spec"].get("type") == "LoadBalancer":
            assert service["metadata"]["name"] == "relay"
            assert service["spec"]["externalTrafficPolicy"] == "Local"
        elif service["metadata"]["name"] == "transceiver":
            assert service["spec"]["clusterIP"] == "None"
        else:
            assert service["spec"].get("type", "ClusterIP") == "ClusterIP"


@pytest.mark.parametrize("overlay", ["region", "global/frankfurt", "global/virginia"])
def test_a_region_scales_and_survives(overlay: str) -> None:
    objects = manifests.render(overlay)
    for name, metric in (("transceiver", "Pods"), ("signaling", "Resource")):
        scaler = manifests.named(objects, "HorizontalPodAutoscaler", name)
        assert [one["type"] for one in scaler["spec"]["metrics"]] == [metric]
        assert scaler["spec"]["minReplicas"] >= 2
        budget = manifests.named(objects, "PodDisruptionBudget", name)
        assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        pod = manifests.named(objects, "Deployment", name)
        labels = pod["spec"]["template"]["metadata"]["labels"].items()
        assert budget["spec"]["selector"]["matchLabels"].items() <= labels
        # The autoscaler's number would be overwritten by one that is applied.
        assert "replicas" not in pod["spec"]
        keys = {one["topologyKey"] for one in manifests.pod_of(pod)["topologySpreadConstraints"]}
        assert keys == {"topology.kubernetes.io/zone", "kubernetes.io/hostname"}


@pytest.mark.parametrize("overlay", ["region", "global/frankfurt", "global/virginia"])
def test_transceivers_scale_before_they_are_full(overlay: str) -> None:
    objects = manifests.render(overlay)
    one = manifests.container(objects, "transceiver", "transceiver")
    variables = {each["name"]: each.get("value") for each in one.spec["env"]}
    # Sessions with a model are transcoded: as many as the guide says that a core is planned for.
    guide = (manifests.REPOSITORY / "docs/operations.md").read_text()
    planned = re.search(r"^\| transceiver, Opus decoded and encoded \|.*\| (\d+) \|$", guide, re.MULTILINE)
    assert planned, "docs/operations.md says what a transceiver's core is planned for"
    assert variables["FIRSTHOP_SESSIONS_PER_WORKER"] == planned[1]
    capacity = int(variables["FIRSTHOP_SESSIONS_PER_WORKER"]) * pods.quantity(one.spec["resources"]["limits"]["cpu"])
    scaler = manifests.named(objects, "HorizontalPodAutoscaler", "transceiver")
    target = pods.quantity(scaler["spec"]["metrics"][0]["pods"]["target"]["averageValue"])
    assert 0.4 * capacity <= target <= 0.75 * capacity


@overlay
def test_keys_are_in_secrets_and_only_with_those_who_need_them(overlay: str) -> None:
    objects = manifests.render(overlay)
    assert not manifests.of_kind(objects, "Secret"), "secrets are not in the manifests"
    needed = {
        "relay": {"firsthop-data-keyring"},
        "transceiver": {"firsthop-data-keyring", "firsthop-control", "firsthop-model"},
        "signaling": {"firsthop-data-keyring", "firsthop-api-keyring", "firsthop-api-keys", "firsthop-control"},
    }
    for workload in manifests.workloads(objects):
        volumes = manifests.pod_of(workload).get("volumes", [])
        mounted = {one["secret"]["secretName"] for one in volumes if "secret" in one}
        assert mounted <= needed.get(workload["metadata"]["name"], set()), workload["metadata"]["name"]
    for config in manifests.of_kind(objects, "ConfigMap"):
        assert "sha256" not in str(config["data"])
