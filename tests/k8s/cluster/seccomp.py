"""A seccomp profile, as container runtimes read it, made into the filter that the kernel runs.

Only what our own profile has: one default action, and names of system calls that are allowed whatever their arguments.
"""

import json
import platform
import re
import struct
from pathlib import Path

#: What becomes of a call: allowed, failed with EPERM, or the process's end.
ALLOW, NOT_PERMITTED, KILL_PROCESS = 0x7FFF_0000, 0x0005_0001, 0x8000_0000

#: Audit architecture, and the header with the numbers, of each machine that the profile names.
_MACHINES = {
    "x86_64": ("SCMP_ARCH_X86_64", 0xC000_003E, ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h",)),
    "aarch64": ("SCMP_ARCH_AARCH64", 0xC000_00B7, ("/usr/include/asm-generic/unistd.h",)),
}


def allowed(profile: Path) -> set[str]:
    """The names of the system calls that a profile allows."""
    content = json.loads(profile.read_text())
    assert content["defaultAction"] == "SCMP_ACT_ERRNO"
    names: set[str] = set()
    for rule in content["syscalls"]:
        assert rule["action"] == "SCMP_ACT_ALLOW"
        assert not rule.get("args"), "conditions on arguments are not understood here"
        names.update(rule["names"])
    return names


def numbers() -> dict[str, int]:
    """This machine's system calls, by name."""
    _, _, headers = _MACHINES[platform.machine()]
    text = "".join(Path(header).read_text() for header in headers)
    return {name: int(number) for name, number in re.findall(r"#define __NR_(\w+)\s+(\d+)", text)}


def program(profile: Path, otherwise: int) -> bytes:
    """The filter: `otherwise` is what becomes of a call that the profile does not allow.

    A profile names calls of several machines; those that this one does not have are left out, as a runtime does.
    """
    name, _, _ = _MACHINES[platform.machine()]
    content = json.loads(profile.read_text())
    assert name in content["architectures"]
    return assemble(allowed(profile), otherwise)


def assemble(names: set[str], otherwise: int) -> bytes:
    """The filter that allows these calls, and no other."""
    _, architecture, _ = _MACHINES[platform.machine()]
    here = numbers()
    load, equal, give = 0x20, 0x15, 0x06
    code = [(load, 0, 0, 4), (equal, 1, 0, architecture), (give, 0, 0, KILL_PROCESS), (load, 0, 0, 0)]
    for number in sorted(here[one] for one in names if one in here):
        code += [(equal, 0, 1, number), (give, 0, 0, ALLOW)]
    code.append((give, 0, 0, otherwise))
    return b"".join(struct.pack("=HBBI", *one) for one in code)
