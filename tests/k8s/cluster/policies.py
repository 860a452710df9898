"""NetworkPolicies, enforced: what a cluster's network does with them, as nftables rules in a pod's own namespace.

As Kubernetes specifies them: a pod that a policy of a direction selects has only what some rule of these allows, and
answers to that. Peers that are other pods are the addresses that these have at the moment; the kubelet of the pod's own
node is always let in.
"""

from .manifests import Object, of_kind

#: The addresses of pods, by the labels that their workload gives them.
Pods = list[tuple[dict[str, str], str]]


def rules(objects: list[Object], labels: dict[str, str], pods: Pods, node: str) -> str:
    """The rules for a pod with these labels."""
    policies = [one for one in of_kind(objects, "NetworkPolicy") if _selects(one["spec"]["podSelector"], labels)]
    chains = []
    for way, hook, peer_address in (("Ingress", "input", "saddr"), ("Egress", "output", "daddr")):
        holding = [one["spec"] for one in policies if way in one["spec"]["policyTypes"]]
        lines = [f"type filter hook {hook} priority filter; policy {'drop' if holding else 'accept'}"]
        lines += ["ct state established,related accept", f'meta {"i" if way == "Ingress" else "o"}ifname "lo" accept']
        # How IPv6 finds its neighbours, which no policy is about.
        lines.append("meta l4proto ipv6-icmp accept")
        if way == "Ingress":
            lines.append(f"meta l4proto tcp ip saddr {node} accept")
        for spec in holding:
            for rule in spec.get(way.lower(), []):
                lines += _allow(rule, peer_address, pods)
        # How many it refused, for whoever asks.
        lines.append(f"counter name refused_{hook} drop" if holding else "accept")
        body = "\n".join(lines)
        chains.append(f"counter refused_{hook} {{ }}\nchain {hook} {{\n{body}\n}}")
    return "table inet cluster {\n" + "\n".join(chains) + "\n}\n"


def _selects(selector: Object, labels: dict[str, str]) -> bool:
    return selector.get("matchLabels", {}).items() <= labels.items()


def _allow(rule: Object, address: str, pods: Pods) -> list[str]:
    ports = []
    for port in rule.get("ports", []):
        last = f"-{port['endPort']}" if "endPort" in port else ""
        ports.append(f"{port['protocol'].lower()} dport {port['port']}{last}")
    key = "from" if address == "saddr" else "to"
    if key not in rule:
        return [f"{port} accept" for port in ports]
    lines = []
    for peer in rule[key]:
        if "ipBlock" in peer:
            networks = [peer["ipBlock"]["cidr"]]
        elif "namespaceSelector" in peer:
            # Nobody of another namespace is in these tests.
            networks = []
        else:
            networks = [ip for labels, ip in pods if _selects(peer["podSelector"], labels)]
        for network in networks:
            family = "ip6" if ":" in network else "ip"
            lines += [f"{family} {address} {network} {port} accept" for port in ports]
    return lines
