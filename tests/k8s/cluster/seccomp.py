"""A seccomp profile, as container runtimes read it, made into the filter that the kernel runs.

Only what our own profile has: one default action; names of system calls that are allowed whatever their arguments, or
when masked bits of one argument have a value; names of those that fail with a number of their own.
"""

import json
import platform
import re
import struct
import sys
from pathlib import Path
from typing import Any

#: What becomes of a call: allowed, failed with EPERM, or the process's end.
ALLOW, NOT_PERMITTED, KILL_PROCESS = 0x7FFF_0000, 0x0005_0001, 0x8000_0000
#: Failed, with the number of the error in its lower half.
_FAIL = 0x0005_0000

#: Instructions: load a word of what the kernel tells of the call, and, jump if equal, return.
_LOAD, _AND, _EQUAL, _GIVE = 0x20, 0x54, 0x15, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16

_Code = list[tuple[int, int, int, int]]

#: Audit architecture, and the header with the numbers, of each machine that the profile names.
_MACHINES = {
    "x86_64": ("SCMP_ARCH_X86_64", 0xC000_003E, ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h",)),
    "aarch64": ("SCMP_ARCH_AARCH64", 0xC000_00B7, ("/usr/include/asm-generic/unistd.h",)),
}


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
    assert content["defaultAction"] == "SCMP_ACT_ERRNO"
    plain: set[str] = set()
    special: dict[str, _Code] = {}
    for rule in content["syscalls"]:
        code = _outcome(rule, otherwise)
        if code == [(_GIVE, 0, 0, ALLOW)]:
            plain.update(rule["names"])
        else:
            special.update(dict.fromkeys(rule["names"], code))
    assert not plain & special.keys(), "a call has one rule"
    return assemble(plain, otherwise, special)


def _outcome(rule: dict[str, Any], otherwise: int) -> _Code:
    """What is done about a call that a rule names; it ends in an answer."""
    if rule["action"] == "SCMP_ACT_ERRNO":
        assert not rule.get("args"), "only calls that are allowed have conditions here"
        return [(_GIVE, 0, 0, _FAIL | rule["errnoRet"])]
    assert rule["action"] == "SCMP_ACT_ALLOW", rule["action"]
    conditions = rule.get("args", [])
    if not conditions:
        return [(_GIVE, 0, 0, ALLOW)]
    (condition,) = conditions
    assert condition["op"] == "SCMP_CMP_MASKED_EQ"
    mask, wanted = condition["value"], condition["valueTwo"]
    assert max(mask, wanted) < 1 << 32, "the lower half of an argument alone is looked at"
    assert sys.byteorder == "little"
    return [
        (_LOAD, 0, 0, _ARGUMENTS + 8 * condition["index"]),
        (_AND, 0, 0, mask),
        (_EQUAL, 0, 1, wanted),
        (_GIVE, 0, 0, ALLOW),
        (_GIVE, 0, 0, otherwise),
    ]


def assemble(names: set[str], otherwise: int, special: dict[str, _Code] | None = None) -> bytes:
    """The filter that allows these calls, does with the special ones as their code says, and allows no other."""
    _, architecture, _ = _MACHINES[platform.machine()]
    here = numbers()
    outcomes = {**dict.fromkeys(names, [(_GIVE, 0, 0, ALLOW)]), **(special or {})}
    code = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_GIVE, 0, 0, KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER),
    ]
    for name, outcome in sorted(outcomes.items()):
        if name in here:
            code += [(_EQUAL, 0, len(outcome), here[name]), *outcome]
    code.append((_GIVE, 0, 0, otherwise))
    return b"".join(struct.pack("=HBBI", *one) for one in code)
