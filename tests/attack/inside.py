"""A hijacked agent: what it tries from a command in its sandbox. Each script says REACHED where it succeeds."""

# ruff: noqa: E501 - one case a line reads as the table it is

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from perdure.adapters.sandbox.grades import probe, probe_landlock
from perdure.models.config.repository import SandboxGrade
from tests.attack.table import GAP, HELD, LEFT, MISSED, SECRET, Case, Ground, Seen, one_line

GROUP = "hijacked agent"


@dataclass(frozen=True)
class Try:
    """`open`: it succeeds without a sandbox, and trying that harms nothing. `reduced`: it fails in that grade too.

    `given`: fields of the command, and what stands in the script for `{names}`, both made once.
    """

    name: str
    expected: str
    script: str
    open: bool = True
    reduced: bool = True
    fields: dict[str, object] = field(default_factory=dict)
    given: Callable[[Ground], tuple[dict[str, object], dict[str, object]]] | None = None


def python(code: str) -> str:
    return f"python3 - <<'END'\nimport os, socket, sys, ctypes, errno\n{code}\nEND"


def call(name: str, number: int, arguments: str = "0, 0, 0, 0, 0", allowed: str = "False") -> str:
    """A system call of x86-64; REACHED unless the filter itself answers."""
    return python(
        f"libc = ctypes.CDLL(None, use_errno=True)\nctypes.set_errno(0)\nr = libc.syscall({number}, {arguments})\n"
        f"e = errno.errorcode.get(ctypes.get_errno(), '0')\n"
        f"print('REACHED' if r >= 0 or e not in ('EPERM', 'ENOSYS', 'EAFNOSUPPORT') or {allowed} else 'refused', '{name}', e)"
    )


def connect(family: str, place: str, kind: str = "SOCK_STREAM") -> str:
    return python(
        f"s = socket.socket(socket.{family}, socket.{kind}); s.settimeout(3)\n"
        f"try:\n    s.connect({place}); print('REACHED')\nexcept OSError as e:\n    print('refused', e)"
    )


READING = (
    Try("reads the host's /etc/shadow", "not there", "cat {shadow} && echo REACHED", open=os.geteuid() == 0),
    Try("reads a key in the owner's ~/.ssh", "not there", "cat {owner}/.ssh/id_rsa && echo REACHED"),
    Try("reads ~/.aws/credentials", "not there", "cat {owner}/.aws/credentials && echo REACHED"),
    Try("reads ~/.config/gh/hosts.yml", "not there", "cat {owner}/.config/gh/hosts.yml && echo REACHED"),
    Try("reads the key in its own environment", "not there", f"env | grep {SECRET} && echo REACHED", open=False),
    Try("reads the worker's environment by its parent's pid", "not visible", f"cat /proc/{{worker}}/environ | tr '\\0' '\\n' | grep {SECRET} && echo REACHED", open=False, reduced=False),
    Try("reads any process's environment", "not visible", f"cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep {SECRET} && echo REACHED", open=False),
    Try("sees the host's processes", "not visible", "test -d /proc/{worker} && echo REACHED", reduced=False),
    Try("reads another delivery's worktree", "not there", "cat {other}/notes && echo REACHED"),
    Try("reads the host's shared memory", "not there", "cat {shm} && echo REACHED", reduced=False),
    Try("reads PERDURE_HOME", "not there", "ls {home} && echo REACHED"),
    Try("follows a link out of the worktree", "leads nowhere", "ln -s {owner}/.ssh/id_rsa key; cat key && echo REACHED"),
    Try("goes through /proc/self/root", "the same root", "cat /proc/self/root{owner}/.ssh/id_rsa && echo REACHED"),
    Try("goes through /proc/1/root", "the sandbox's own root", "cat /proc/1/root{owner}/.ssh/id_rsa && echo REACHED", open=False),
    Try("climbs by ..", "the sandbox's own root", "cat ../../../../../../../..{owner}/.ssh/id_rsa && echo REACHED"),
    Try("makes a hard link to a file of the owner", "other mount", "ln {owner}/.ssh/id_rsa hard && cat hard && echo REACHED"),
    Try("reads the kernel's memory map", "empty or refused", "head -c 10 /proc/kcore >/dev/null && echo REACHED", open=False),
)  # fmt: skip
WRITING = (
    Try("writes to the owner's ~/.bashrc", "read-only or absent", "echo x >> {owner}/.bashrc && echo REACHED"),
    Try("writes to the owner's ~/.gitconfig", "read-only or absent", "echo x > {owner}/.gitconfig && echo REACHED"),
    Try("writes into another delivery's worktree", "read-only or absent", "echo x > {other}/notes && echo REACHED"),
    Try("leaves a file in the host's /tmp", "a /tmp of its own", "echo x > {tmp}/left-behind; true", open=True),
    Try("overwrites .git", "read-only", "echo 'gitdir: /evil' > .git && echo REACHED", reduced=False, fields={"_git": True}),
    Try("replaces .git by a directory", "busy", "mv .git was && mkdir .git && echo REACHED", reduced=False, fields={"_git": True}),
    Try("patches a dependency in .venv", "read-only", "echo x > .venv/pytest.py && echo REACHED", reduced=False, fields={"_git": True}),
    Try("writes a read-only worktree (plan, review)", "read-only", "echo x > mine && echo REACHED", fields={"writable": False}),
    Try("changes mode and time of a file outside", "read-only or absent", "chmod 777 {owner}/.bashrc && touch -d 2001-01-01 {owner}/.bashrc && echo REACHED", reduced=False),
    Try("makes a device file", "refused", "mknod sda b 8 0 && echo REACHED", open=False),
)  # fmt: skip
NETWORK = (
    Try("connects to the host's loopback", "nobody there", connect("AF_INET", "('127.0.0.1', {tcp})")),
    Try("connects to the host's loopback by IPv6", "nobody there", connect("AF_INET6", "('::1', {tcp6})"), open=False),
    Try("connects outside", "unreachable", connect("AF_INET", "('192.0.2.1', 443)"), open=False),
    Try("asks a name server", "unreachable", python("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ntry:\n    s.sendto(b'x', ('127.0.0.1', {udp}))\nexcept OSError as e: print('refused', e)"), fields={"_udp": True}),
    Try("asks for the cloud's credentials (169.254.169.254)", "unreachable", connect("AF_INET", "('169.254.169.254', 80)"), open=False),
    Try("connects to a Unix socket of the host", "not there", connect("AF_UNIX", "'{unix}'"), reduced=False),
    Try("connects to an abstract socket of the host", "other namespace", connect("AF_UNIX", "'\\0{abstract}'")),
    Try("sends raw packets", "refused", python("try:\n    socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); print('REACHED')\nexcept OSError as e: print('refused', e)"), open=os.geteuid() == 0),
    Try("speaks to the kernel's netlink beyond routes", "refused", python("try:\n    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9); print('REACHED')\nexcept OSError as e: print('refused', e)")),
    Try("opens a vsock", "refused", python("try:\n    socket.socket(40, socket.SOCK_STREAM); print('REACHED')\nexcept OSError as e: print('refused', e)"), open=False),
    Try("opens an AF_ALG socket", "refused", python("try:\n    socket.socket(38, socket.SOCK_SEQPACKET); print('REACHED')\nexcept OSError as e: print('refused', e)"), open=False),
)  # fmt: skip
KERNEL = (
    Try("makes a user namespace", "refused", "unshare -U true && echo REACHED"),
    Try("mounts a file system", "refused", "mount -t tmpfs x /mnt && echo REACHED", open=False),
    Try("reads the owner's keyring", "refused", call("keyctl", 250, "0, -3, 0, 0, 0"), open=False),
    Try("uses io_uring", "refused", call("io_uring_setup", 425, "8, 0, 0, 0, 0"), open=False),
    Try("uses bpf", "refused", call("bpf", 321), open=False),
    Try("uses perf_event_open", "refused", call("perf_event_open", 298), open=False),
    Try("uses userfaultfd", "refused", call("userfaultfd", 323, "1, 0, 0, 0, 0"), open=False),
    Try("opens a file by its handle", "refused", call("open_by_handle_at", 304), open=False),
    Try("loads a kernel module", "refused", call("init_module", 175), open=False),
    Try("enters another namespace", "refused", call("setns", 308, "-1, 0, 0, 0, 0"), open=False),
    Try("types into the owner's terminal (TIOCSTI)", "refused", call("ioctl TIOCSTI", 16, "0, 0x5412, ctypes.c_char_p(b'x'), 0, 0"), open=False),
    Try("uses a 32-bit or unknown system call", "refused", call("x32 getpid", 0x40000027), open=False),
    Try("gains rights from a set-uid program", "none", "grep -q 'NoNewPrivs:\\s*1' /proc/self/status || echo REACHED", open=False),
    Try("holds a capability", "none", "grep -E 'Cap(Inh|Prm|Eff|Amb)' /proc/self/status | grep -v 0000000000000000 && echo REACHED", open=os.geteuid() == 0),
)  # fmt: skip
LASTING = (
    Try("leaves a daemon that outlives the command", "dead with it", "setsid sleep {nap} >/dev/null 2>&1 & disown; true", open=False, fields={"_nap": True}),
    Try("ignores the end of its time", "killed", "trap '' TERM INT HUP; while :; do sleep {nap}; done", open=False, fields={"_nap": True, "timeout_s": 2.0}),
    Try("signals the worker", "not visible", "kill -0 {worker} && echo REACHED", open=True),
    Try("floods its output with a gigabyte", "cut off at 50 MB", "head -c 1073741824 /dev/zero; echo REACHED", open=False),
    Try("fills the host's /tmp", "1 GB of its own", "head -c 1200000000 /dev/zero > /tmp/fill && echo REACHED", open=False, reduced=False),
    Try("fills /dev/shm", "1 GB of its own", "head -c 1200000000 /dev/zero > /dev/shm/fill && echo REACHED", open=False, reduced=False),
)  # fmt: skip
USING = (
    Try("takes all memory", "ended, with its processes", "for n in $(seq 8); do python3 -c 'x = bytearray(300 << 20); import time; time.sleep(20)' & done; wait", open=False, fields={"_over": True}),
    Try("is a fork bomb", "ended, with its processes", "bomb() { sleep {nap} & bomb; }; bomb", open=False, fields={"_over": True, "_nap": True}),
    Try("starts threads without end", "ended", "python3 -c 'import threading, time\nfor n in range(300): threading.Thread(target=time.sleep, args=(20,)).start()'", open=False, fields={"_over": True}),
    Try("burns the processor", "ended", "while true; do :; done & while true; do :; done", open=False, fields={"_over": True, "timeout_s": 120.0}),
    Try("fills the disk through the worktree", "ended", "for n in $(seq 1 400); do head -c 4M /dev/zero > big$n; sleep 0.05; done", open=False, fields={"_over": True}),
    Try("fills the disk through a file without a name", "ended", "exec 3> big; rm big; for n in $(seq 1 400); do head -c 4M /dev/zero >&3; sleep 0.05; done", open=False, fields={"_over": True}),
    Try("fills the disk in a directory nobody can look into", "ended", "mkdir d; cd d; python3 -c 'import os, time\nos.chmod(\".\", 0o300)\nfor n in range(400): open(str(n), \"wb\").write(bytes(4 << 20)); time.sleep(0.05)'", open=False, fields={"_over": True}),
    Try("fills the disk with a million empty files", "ended", "python3 -c 'import time\nfor n in range(1000000): open(str(n), \"w\").close()'", open=False, fields={"_over": True, "timeout_s": 120.0}),
)  # fmt: skip
TRIES = (*READING, *WRITING, *NETWORK, *KERNEL, *LASTING, *USING)


@contextmanager
def _world(at: Ground) -> Iterator[tuple[dict[str, object], socket.socket]]:
    """The host as it stands around a sandbox: an owner with secrets, another delivery, servers on every kind of
    socket."""
    owner, other = at.root / "owner", at.root / "other-delivery"
    for name in (".ssh/id_rsa", ".aws/credentials", ".config/gh/hosts.yml", ".bashrc"):
        (owner / name).parent.mkdir(parents=True, exist_ok=True)
        (owner / name).write_text(SECRET)
    other.mkdir(exist_ok=True)
    (other / "notes").write_text(SECRET)
    at.home.root.mkdir(exist_ok=True)
    with ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        udp.settimeout(0.3)
        unix, abstract = (stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2))
        (at.root / "s").unlink(missing_ok=True)
        unix.bind(str(at.root / "s"))
        unix.listen()
        abstract.bind(f"\0attack-{os.getpid()}")
        abstract.listen()
        shared = stack.enter_context(tempfile.NamedTemporaryFile("w", dir="/dev/shm"))
        shared.write(SECRET)
        shared.flush()
        places: dict[str, object] = {
            "owner": owner, "other": other, "home": at.home.root, "worker": os.getpid(), "shadow": "/etc/shadow",
            "tcp": tcp.getsockname()[1], "tcp6": tcp.getsockname()[1], "udp": udp.getsockname()[1],
            "unix": at.root / "s", "abstract": f"attack-{os.getpid()}", "tmp": at.root.parent, "shm": shared.name,
            "nap": f"86{os.getpid() % 1000:03}.7",
        }  # fmt: skip
        yield places, udp


def reached(one: Try, at: Ground, grade: SandboxGrade) -> tuple[bool, str]:
    """True when the attack succeeded, and its output."""
    with _world(at) as (places, udp):
        script, fields = one.script, {name: value for name, value in one.fields.items() if not name.startswith("_")}
        if one.given is not None:
            more, named = at.once(one.given)
            fields, places = fields | more, places | named
        for name, value in places.items():
            script = script.replace("{" + name + "}", str(value))
        if "_git" in one.fields:
            tree = at.root / f"git-{grade}-{abs(hash(one.name))}"
            (tree / ".venv").mkdir(parents=True, exist_ok=True)
            (tree / ".git").write_text("gitdir: /nowhere\n")
            fields["worktree"] = tree
        said = at.run(script, grade, **fields)
        success = "REACHED" in said
        left = at.root.parent / "left-behind"
        if left.exists():
            left.unlink()
            success = True
        if "_udp" in one.fields:
            try:
                success = bool(udp.recv(1))
            except TimeoutError:
                success = False
        if "_nap" in one.fields:
            success = _lives(f"sleep {places['nap']}")
        if "_over" in one.fields:
            success = success or "over its" not in said.replace("over the worktree's", "over its")
        return success, said


def _lives(command: str) -> bool:
    """True when such a process lives; it is ended."""
    import psutil

    found = [p for p in psutil.process_iter(["cmdline"]) if " ".join(p.info["cmdline"] or ()) == command]
    for process in found:
        process.kill()
    return bool(found)


def cases_of(group: str, tries: Sequence[Try]) -> tuple[Case, ...]:
    """Each in grade full, and each once more in grade reduced."""
    return (*(_full(group, one) for one in tries), *map(_reduced, tries))


def _full(group: str, one: Try) -> Case:
    def attack(at: Ground) -> Seen:
        if (error := probe().error) is not None:
            return Seen(GAP, f"no full sandbox on this host: {error.what}")
        success, said = reached(one, at, SandboxGrade.FULL)
        if success:
            return Seen(MISSED, said)
        if not one.open:
            return Seen(HELD, said)
        bare, words = reached(one, at, SandboxGrade.OFF)
        return Seen(HELD, "fails; unprotected it succeeds") if bare else Seen(MISSED, f"proves nothing: {words}")

    return Case(group, one.name, one.expected, attack)


def _reduced(one: Try) -> Case:
    def attack(at: Ground) -> Seen:
        if (error := probe_landlock()) is not None:
            return Seen(LEFT, f"no Landlock on this host: {error.what}")
        success, said = reached(one, at, SandboxGrade.REDUCED)
        if success:
            return Seen(GAP if not one.reduced else MISSED, f"succeeds in this grade: {one_line(said, 60)}")
        return Seen(HELD, "fails here too" if one.reduced else said)

    return Case("grade reduced", one.name, "a gap" if not one.reduced else one.expected, attack)


CASES = cases_of(GROUP, TRIES)
