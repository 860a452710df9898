"""The networks of the test world, as namespaces joined by veth pairs.

    home ──────────┐                          ┌── A ──┐
    198.51.100.2   core ── VIP 203.0.113.10 ──┤       pop ── redis 10.9.0.5
    and .3         │ │                        └── B ──┘│
    office ── nat ─┘ └── s1, s2               10.9.0.x  ├── link1 ── site 1, 10.1.0.x: relays 1a, 1b; owners 1x, 1y; s1
         192.0.2.9       203.0.113.21, .22              └── link2 ── site 2, 10.2.0.x: relay 2a; owner 2x; s2

`core` is the Internet: it routes public addresses, and decides which of the ingress relays A and B gets the VIP.
10.0.0.0/8 is the internal network, which no client reaches: the point of presence `pop`, and two regions. `link1` and
`link2` forward nothing by themselves: `perf impair` does, between their two interfaces, with the delay and the loss of
a line between regions. The kernel's own netem is not used where it is there: with one impairment everywhere, results of
different machines compare. `s1` and `s2` are signaling, and have the model server of their region.
"""

import socket
import struct

from firsthop.namespaces import Namespace, give_address, ip, join

VIP = "203.0.113.10"
HOME, HOME_NEXT = "198.51.100.2", "198.51.100.3"
OFFICE = "192.168.50.2"
NAT = "192.0.2.9"
REDIS = "10.9.0.5"
INTERNAL = "10.0.0.0/8"

#: Addresses in the internal network.
INNER = {
    "A": "10.9.0.11",
    "B": "10.9.0.12",
    "1a": "10.1.0.11",
    "1b": "10.1.0.12",
    "1x": "10.1.0.21",
    "1y": "10.1.0.22",
    "s1": "10.1.0.8",
    "2a": "10.2.0.11",
    "2x": "10.2.0.21",
    "s2": "10.2.0.8",
    "redis": REDIS,
}

#: Addresses that clients reach.
PUBLIC = {"A": "203.0.113.11", "B": "203.0.113.12", "s1": "203.0.113.21", "s2": "203.0.113.22"}

#: Which hosts are on the local network of which router.
SITES = {
    "pop": ("10.9.0.1", ["A", "B", "redis"]),
    "site1": ("10.1.0.1", ["1a", "1b", "1x", "1y", "s1"]),
    "site2": ("10.2.0.1", ["2a", "2x", "s2"]),
}

#: The two interfaces of a link's namespace.
LINK_ENDS = ("left", "right")


class Topology:
    """All hosts, by name: those of INNER and of the sites, `core`, `home`, `office`, `nat`, `link1` and `link2`."""

    def __init__(self) -> None:
        self.hosts: dict[str, Namespace] = {}
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def __getitem__(self, name: str) -> Namespace:
        """A host."""
        return self.hosts[name]

    def close(self) -> None:
        """Removes all hosts."""
        while self.hosts:
            self.hosts.popitem()[1].delete()

    def _make(self) -> None:
        for name in ("core", "home", "nat", "office", "link1", "link2", *SITES, *INNER):
            made = Namespace(name)
            self.hosts[name] = made
            # Nothing but what the world itself sends crosses its links.
            made.set_kernel("net/ipv6/conf/default/disable_ipv6", "1")
        for name in ("core", "nat", *SITES):
            self[name].set_kernel("net/ipv4/ip_forward", "1")
        # Flows, and not addresses, are spread over equal routes.
        self["core"].set_kernel("net/ipv4/fib_multipath_hash_policy", "1")
        self._clients()
        for site, (address, members) in SITES.items():
            self._site(site, address, members)
        for number, name in enumerate(PUBLIC, 1):
            self._public(name, number)
        for number in (1, 2):
            self._line(number)
        self.lead_vip("A")

    def _clients(self) -> None:
        core, home, nat, office = (self[name] for name in ("core", "home", "nat", "office"))
        join(core, "home", home, "core")
        give_address(core, "home", "198.51.100.1/24")
        for address in (HOME, HOME_NEXT):
            give_address(home, "core", f"{address}/24")
        _default(home, "198.51.100.1")
        join(core, "nat", nat, "outside")
        give_address(core, "nat", "192.0.2.1/24")
        give_address(nat, "outside", f"{NAT}/24")
        _default(nat, "192.0.2.1")
        join(nat, "inside", office, "nat")
        give_address(nat, "inside", "192.168.50.1/24")
        give_address(office, "nat", f"{OFFICE}/24")
        _default(office, "192.168.50.1")
        self.map_ports(20_000)

    def _site(self, site: str, address: str, members: list[str]) -> None:
        router = self[site]
        ip("-n", router.name, "link", "add", "lan", "type", "bridge")
        ip("-n", router.name, "link", "set", "lan", "up")
        give_address(router, "lan", f"{address}/24")
        for member in members:
            join(router, f"to-{member}", self[member], "inner")
            ip("-n", router.name, "link", "set", f"to-{member}", "master", "lan")
            give_address(self[member], "inner", f"{INNER[member]}/24")
            ip("-n", self[member].name, "route", "add", INTERNAL, "via", address)

    def _public(self, name: str, number: int) -> None:
        """Joins a host to the core, which leads its public address to it."""
        core, host = self["core"], self[name]
        ours, theirs = f"172.31.{number}.1", f"172.31.{number}.2"
        join(core, f"to-{name}", host, "outer")
        give_address(core, f"to-{name}", f"{ours}/30")
        give_address(host, "outer", f"{theirs}/30")
        give_address(host, "lo", f"{PUBLIC[name]}/32")
        if name in ("A", "B"):
            give_address(host, "lo", f"{VIP}/32")
        _default(host, ours)
        ip("-n", core.name, "route", "add", f"{PUBLIC[name]}/32", "via", theirs)

    def _line(self, number: int) -> None:
        """Joins a site to the point of presence by a line whose middle is a program's."""
        pop, middle, site = self["pop"], self[f"link{number}"], self[f"site{number}"]
        for left, left_name, right, right_name in (
            (pop, f"line{number}", middle, LINK_ENDS[0]),
            (middle, LINK_ENDS[1], site, "line"),
        ):
            join(left, left_name, right, right_name)
        give_address(pop, f"line{number}", f"10.255.{number}.1/30")
        give_address(site, "line", f"10.255.{number}.2/30")
        ip("-n", pop.name, "route", "add", f"10.{number}.0.0/16", "via", f"10.255.{number}.2")
        ip("-n", site.name, "route", "add", INTERNAL, "via", f"10.255.{number}.1")

    def lead_vip(self, *relays: str) -> None:
        """Leads the VIP to this ingress relay, or spreads its flows over several."""
        numbers = {name: number for number, name in enumerate(PUBLIC, 1)}
        hops = [part for relay in relays for part in ("nexthop", "via", f"172.31.{numbers[relay]}.2")]
        ip("-n", self["core"].name, "route", "replace", f"{VIP}/32", *hops)

    def map_ports(self, first: int) -> None:
        """Has the NAT give clients ports from this one on, 10,000 of them, and forget those that it gave before."""
        rules = f"""
            table ip translation
            delete table ip translation
            table ip translation {{
                chain leaving {{
                    type nat hook postrouting priority srcnat; policy accept
                    oifname "outside" meta l4proto {{ tcp, udp }} masquerade to :{first}-{first + 9_999}
                }}
                chain arriving {{
                    type filter hook input priority filter; policy accept
                    iifname "outside" meta l4proto udp drop
                }}
            }}
        """
        nat = self["nat"]
        nat.check("nft", "-f", "-", stdin="\n".join(line.strip() for line in rules.splitlines()))
        nat.call(_forget_connections)


def _default(namespace: Namespace, router: str) -> None:
    ip("-n", namespace.name, "route", "add", "default", "via", router)


# From linux/netfilter/nfnetlink.h and nfnetlink_conntrack.h.
_NETLINK_NETFILTER, _DELETE_CONNECTIONS = 12, (1 << 8) | 2
_REQUEST, _ACKNOWLEDGE, _ERROR = 1, 4, 2


def _forget_connections() -> None:
    """Empties the table of tracked IPv4 connections of the namespace that the thread is in."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER) as kernel:
        body = struct.pack("BBH", socket.AF_INET, 0, 0)
        head = struct.pack("IHHII", 16 + len(body), _DELETE_CONNECTIONS, _REQUEST | _ACKNOWLEDGE, 1, 0)
        kernel.send(head + body)
        _, kind, _, _, _, status = struct.unpack("IHHIIi", kernel.recv(4_096)[:20])
        if kind != _ERROR or status != 0:
            raise OSError(-status, "the kernel does not forget its tracked connections")
