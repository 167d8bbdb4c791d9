"""The system calls a command may make: the table, the program made of it, and the kernel that enforces it."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.adapters.sandbox import confine
from perdure.adapters.sandbox.supervision import KEYCTL

ROOT = Path(__file__).resolve().parents[3]
MACHINES = sorted(confine.AUDIT)
FORBIDDEN = (
    *("keyctl", "add_key", "request_key", "bpf", "perf_event_open", "userfaultfd", "kexec_load", "kexec_file_load"),
    *("io_uring_setup", "io_uring_enter", "io_uring_register", "mount", "umount2", "pivot_root", "chroot", "setns"),
    *("unshare", "fsopen", "fsmount", "move_mount", "open_tree", "mount_setattr", "open_by_handle_at", "init_module"),
    *("finit_module", "delete_module", "reboot", "swapon", "syslog", "pidfd_getfd", "quotactl", "acct", "settimeofday"),
    *("clock_settime", "sethostname", "fanotify_init", "process_madvise", "kcmp"),
)


def answer(program: bytes, machine: str, number: int, *arguments: int) -> int:
    """The kernel's verdict on one call: the filter's few instructions, done by hand."""
    data = struct.pack("=IIQ6Q", number, confine.AUDIT[machine], 0, *arguments, *[0] * (6 - len(arguments)))
    lines = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    at = value = 0
    while True:
        code, yes, no, operand = lines[at]
        at += 1
        match code:
            case confine.LOAD:
                value = int(struct.unpack_from("=I", data, operand)[0])
            case confine.AND:
                value &= operand
            case confine.RETURN:
                return int(operand)
            case confine.EQUAL | confine.ABOVE | confine.AT_LEAST:
                hit = {confine.EQUAL: value == operand, confine.ABOVE: value > operand}.get(code, value >= operand)
                at += yes if hit else no
            case _:
                raise AssertionError(code)


def refused(number: int) -> int:
    return 0x00050000 | number


def numbers(machine: str) -> dict[str, int]:
    """Every name libseccomp knows, with its number: an independent table."""
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        pytest.skip("there is no libseccomp to compare with")
    library.seccomp_syscall_resolve_num_arch.restype = ctypes.c_char_p
    found = {}
    for number in range(451):
        name = library.seccomp_syscall_resolve_num_arch(confine.AUDIT[machine], number)
        if name:
            found[name.decode()] = number
    return found


@pytest.mark.parametrize("machine", MACHINES)
def test_every_system_call_gets_the_answer_the_table_says(machine):
    program, allowed = confine.filter_program(machine), confine.allowed_calls(machine)
    special = {confine.SOCKET[machine], confine.CLONE[machine], confine.IOCTL[machine], confine.PERSONALITY[machine]}
    assert not special & set(allowed.values())
    for number in set(range(confine.NEWEST + 1)) - special - {confine.CLONE3}:
        expected = confine.ALLOW if number in allowed.values() else refused(errno.EPERM)
        assert answer(program, machine, number) == expected, number
    for number in (confine.NEWEST + 1, confine.CLONE3, confine.X32 | 0, 0xFFFFFFFF):
        assert answer(program, machine, number) == refused(errno.ENOSYS)
    other = "aarch64" if machine == "x86_64" else "x86_64"
    assert answer(program, other, 0) == confine.KILL


@pytest.mark.parametrize("machine", MACHINES)
def test_arguments_decide_about_sockets_namespaces_terminals_and_personalities(machine):
    program, unix_only = confine.filter_program(machine), confine.filter_program(machine, internet=False)
    socket, clone = confine.SOCKET[machine], confine.CLONE[machine]
    for family in range(50):
        allowed = family in (1, 2, 10, 16)
        assert answer(program, machine, socket, family, 3, 0) == (confine.ALLOW if allowed else refused(97)), family
        assert answer(unix_only, machine, socket, family, 3, 0) == (confine.ALLOW if family == 1 else refused(97))
    for protocol in range(1, 23):
        assert answer(program, machine, socket, 16, 3, protocol) == refused(errno.EAFNOSUPPORT)
    assert answer(program, machine, clone, 0x003D0F00) == confine.ALLOW  # a thread
    for bit in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert answer(program, machine, clone, bit | 17) == refused(errno.EPERM)
    assert answer(program, machine, confine.IOCTL[machine], 0, 0x5401) == confine.ALLOW
    assert answer(program, machine, confine.IOCTL[machine], 0, 0xFFFFFFFF00005412) == refused(errno.EPERM)
    assert answer(program, machine, confine.PERSONALITY[machine], 0x0040000) == refused(errno.EPERM)
    assert answer(program, machine, confine.PERSONALITY[machine], 0xFFFFFFFF) == confine.ALLOW


@pytest.mark.parametrize("machine", MACHINES)
def test_the_numbers_are_the_kernels_and_every_name_is_one_docker_allows_too(machine):
    known, allowed = numbers(machine), confine.allowed_calls(machine)
    assert {name: number for name, number in allowed.items() if known.get(name, number) != number} == {}
    assert not set(allowed) & set(FORBIDDEN)
    profile = json.loads((ROOT / "deploy/seccomp.json").read_text())
    docker = {name for rule in profile["syscalls"] if not rule.get("comment") for name in rule["names"]}
    assert set(allowed) <= docker


CALLS = """
import ctypes, errno, json, sys
libc = ctypes.CDLL(None, use_errno=True)
said = {}
for name, number in json.loads(sys.argv[1]).items():
    ctypes.set_errno(0)
    libc.syscall(number, -1, None, None, None, None)
    said[name] = errno.errorcode.get(ctypes.get_errno(), "0")
print(json.dumps(said))
"""


@pytest.mark.parametrize("grade", ["full", "reduced"])
async def test_the_kernel_refuses_what_outside_it_would_only_find_badly_asked(grade, request, run, tmp_path):
    """Every call has arguments that no kernel takes, so that outside it changes nothing."""
    table = numbers(os.uname().machine)
    harmful = {"reboot", "setns", "unshare", "chroot", "acct", "swapon", "sethostname", "syslog", "settimeofday"}
    asked = json.dumps({name: table[name] for name in FORBIDDEN if name in table and name not in harmful})
    outside = json.loads(subprocess.run([sys.executable, "-c", CALLS, asked], capture_output=True, timeout=30).stdout)
    assert sum(said != "EPERM" for said in outside.values()) > 3, outside
    said = (await run(request.getfixturevalue(grade), f"python3 -c '{CALLS}' '{asked}'"))[1]
    assert set(json.loads(said).values()) == {"EPERM"}, said


SOCKETS = """
import socket
for family, protocol in ((16, 0), (16, 15), (17, 0), (38, 0), (40, 0), (1, 0), (2, 0), (10, 0)):
    try:
        socket.socket(family, socket.SOCK_STREAM if family in (1, 2, 10) else socket.SOCK_DGRAM, protocol)
        print("yes", end=" ")
    except OSError as error:
        print(error.errno, end=" ")
"""


async def test_only_unix_internet_and_routing_sockets_can_be_made(full, run):
    _, said = await run(full, f"python3 -c '{SOCKETS}'")
    assert said.split() == ["yes", "97", "97", "97", "97", "yes", "yes", "yes"]


async def test_every_process_inside_is_filtered_the_first_one_too(full, run):
    _, said = await run(full, "grep -h ^Seccomp: /proc/[0-9]*/status | sort -u")
    assert said.split() == ["Seccomp:", "2"]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the second interface is x86-64's")
async def test_32_bit_programs_are_ended_and_there_is_no_x32(full, run, tmp_path, worktree):
    """`int $0x80` asks as a 32-bit program does; number 20 is its getpid."""
    code = bytes.fromhex("b814000000cd80c3")
    script = f"""import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=7)
page.write({code!r})
print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))() > 0, flush=True)
"""
    (worktree / "old.py").write_text(script)
    finished, said = await run(full, "python3 old.py")
    assert (finished.exit_code, said.count("True")) == (128 + 31, 0)
    _, said = await run(full, "python3 -c 'import ctypes; print(ctypes.CDLL(None).syscall(0x40000000 + 39))'")
    assert said == "-1\n"


SEARCH = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
found = libc.syscall(int(sys.argv[1]), 10, -3, b"user", b"perdure-test-key", 0)
print("FOUND" if found > 0 else "errno %d" % ctypes.get_errno())
"""


async def test_the_owners_keys_are_in_no_sandbox_of_any_grade(any_grade, run):
    """In a process of its own, for the owner's keyring cannot be taken back."""
    number = KEYCTL[os.uname().machine]
    libc = ctypes.CDLL(None, use_errno=True)
    add = {"x86_64": 248, "aarch64": 217}[os.uname().machine]
    if libc.syscall(number, 1, None) < 0 or libc.syscall(add, b"user", b"perdure-test-key", b"secret", 6, -3) < 0:
        pytest.skip("this kernel, or this container, has no keys")
    search = [sys.executable, "-c", SEARCH, str(number)]
    assert subprocess.run(search, capture_output=True, text=True, timeout=30).stdout == "FOUND\n"
    _, said = await run(any_grade, f"python3 -c '{SEARCH}' {number}; cat /proc/keys")
    expected = f"errno {errno.ENOKEY if any_grade.grade == 'off' else errno.EPERM}\n"
    assert said.startswith(expected)
    if any_grade.grade == "full":
        assert said == f"{expected}cat: /proc/keys: Permission denied\n"
