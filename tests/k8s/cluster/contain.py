"""Runs a program as a container runtime would: in a read-only root, as another user, without capabilities, filtered.

`python contain.py SPEC.json`, as root, in a mount namespace that is nobody else's (`ip netns exec` makes one). The
process becomes the program: its id stays. SPEC has: root, mounts (source, target, read_only), read_only, uid, gid,
memlock, no_new_privileges, seccomp (the filter in hexadecimal, or nothing), argv, environment. The standard library
alone, for it runs before there is anything else.
"""

import ctypes
import json
import os
import resource
import sys

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 24, 38, 2

_libc = ctypes.CDLL(None, use_errno=True)


def _must(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _mount(source: str, target: str, flags: int) -> None:
    _must(_libc.mount(source.encode(), target.encode(), b"none", flags, None), f"mounting {source} at {target}")


def _prctl(option: int, *arguments: object) -> int:
    whole = [ctypes.c_ulong(one) if isinstance(one, int) else one for one in (*arguments, 0, 0, 0, 0)[:4]]
    return int(_libc.prctl(option, *whole))


def _build_root(spec: dict) -> None:
    root = spec["root"]
    _mount("none", "/", MS_REC | MS_PRIVATE)
    _mount(root, root, MS_BIND)
    for name in ("proc", "sys", "dev"):
        _mount(f"/{name}", f"{root}/{name}", MS_BIND | MS_REC)
    for mount in spec["mounts"]:
        target = root + mount["target"]
        _mount(mount["source"], target, MS_BIND)
        if mount["read_only"]:
            _mount("none", target, MS_REMOUNT | MS_BIND | MS_RDONLY)
    if spec["read_only"]:
        _mount("none", root, MS_REMOUNT | MS_BIND | MS_RDONLY)


def _drop(spec: dict) -> None:
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (spec["memlock"], spec["memlock"]))
    capability = 0
    # Until there is none of that number.
    while _prctl(PR_CAPBSET_DROP, capability) == 0:
        capability += 1
    os.setgroups([spec["gid"]])
    os.setresgid(spec["gid"], spec["gid"], spec["gid"])
    if spec["uid"] == 0:
        # Root keeps what it has when it becomes root: it has to let go by itself.
        header = (ctypes.c_uint32 * 2)(0x2008_0522, 0)
        _must(_libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")
    os.setresuid(spec["uid"], spec["uid"], spec["uid"])
    if spec["no_new_privileges"]:
        _must(_prctl(PR_SET_NO_NEW_PRIVS, 1), "no new privileges")


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def confine(code: bytes) -> None:
    """Has the kernel ask a filter about every system call of this process, and of those that it makes."""
    program = _Program(len(code) // 8, code)
    _must(_prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program)), "seccomp")


def main() -> None:
    """Becomes the program."""
    with open(sys.argv[1]) as file:
        spec = json.load(file)
    _build_root(spec)
    os.chroot(spec["root"])
    os.chdir("/")
    _drop(spec)
    argv, environment = spec["argv"], spec["environment"]
    if spec["seccomp"]:
        confine(bytes.fromhex(spec["seccomp"]))
    os.execve(argv[0], argv, environment)


if __name__ == "__main__":
    main()
