"""Honest agents, test runs and set-ups: the nearest useful thing to each attack, which has to work in the sandbox."""

# ruff: noqa: E501 - one case a line reads as the table it is

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from perdure.adapters.sandbox.grades import probe, probe_landlock
from perdure.adapters.sandbox.reach import Reach
from perdure.models.config.repository import SandboxGrade
from tests.attack.inside import python
from tests.attack.table import GAP, LEFT, Case, Ground, Seen, works
from tests.repositories import git

GROUP, SETUP = "honest agent", "honest setup"

READING = {
    "reads its own files": "cat notes | grep -q words",
    "reads /etc/passwd for its own name": "id -un && getent passwd $(id -u)",
    "resolves localhost": "getent hosts localhost",
    "reads certificates of the system": "ls /etc/ssl/certs | head -1",
    "reads its own environment": "env | grep ^PATH= && env | grep ^HOME=",
    "reads its own /proc": "cat /proc/self/status | grep -q VmRSS && cat /proc/cpuinfo /proc/meminfo > /dev/null",
    "lists its own processes": "sleep 5 & ps -o pid= -p $! || test -d /proc/$!; kill $!",
    "follows a link inside the worktree": "ln -s notes link && cat link | grep -q words",
    "follows a link to a directory": "mkdir d && cp notes d && ln -s d e && grep -q words e/notes",
    "climbs by .. inside the worktree": "mkdir -p a/b && cd a/b && grep -q words ../../notes",
    "makes a hard link inside the worktree": "ln notes hard && cmp notes hard",
    "finds and greps": "find . -name notes | xargs grep -q words",
    "reads its own root by /proc/self/cwd": "grep -q words /proc/self/cwd/notes",
    "reads a file of a megabyte": "head -c 1000000 /dev/urandom > big && wc -c < big | grep -q 1000000",
    "reads a file with an awkward name": "echo x > $'a \\n#%\"' && cat a*",
    "asks for time zone and locale": "date && LC_ALL=C.UTF-8 python3 -c 'print(chr(233))'",
    "runs the system's python": "python3 -c 'import ssl, sqlite3, ctypes, json, zoneinfo'",
}
WRITING = {
    "writes to its home": "mkdir -p ~/.config/tool && echo x > ~/.config/tool/settings && cat ~/.config/tool/settings",
    "has a git configuration of a repository of its own": "git init -q r && cd r && git config user.name me && git config user.name",
    "writes to TMPDIR": "f=$(mktemp) && echo x > $f && cat $f",
    "makes a directory in TMPDIR": "d=$(mktemp -d) && touch $d/x && rm -r $d",
    "writes, renames and removes files": "echo x > a && mv a b && rm b && test ! -e a",
    "replaces a file as editors do": "cp notes n && echo more >> n && mv n notes && grep -q more notes",
    "makes a file that runs": "printf '#!/bin/sh\\necho ran\\n' > run && chmod +x run && ./run | grep -q ran",
    "changes mode and time of its files": "chmod 640 notes && touch -d 2001-01-01 notes && stat -c %a notes | grep -q 640",
    "makes a named pipe": "mkfifo p && (echo x > p &) && cat p | grep -q x && rm p",
    "unpacks an archive": "tar cf a.tar notes && mkdir u && tar xf a.tar -C u && cmp notes u/notes",
    "patches a file": "printf -- '--- notes\\n+++ notes\\n@@ -1 +1 @@\\n-words\\n+others\\n' > p && (patch -s notes p || git apply p) && grep -q others notes",
    "begins a repository inside": "mkdir r && cd r && git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && git log --oneline",
    "writes a database": python(
        "import sqlite3\nc = sqlite3.connect('d.db'); c.execute('create table t(x)'); c.execute('insert into t values(1)'); c.commit()\nassert c.execute('select x from t').fetchone() == (1,)"
    ),
    "locks a file": "flock lock echo locked",
    "maps a file into memory": python(
        "import mmap\nf = open('m', 'w+b'); f.write(bytes(4096)); f.flush()\nm = mmap.mmap(f.fileno(), 4096); m[0] = 1; m.flush()"
    ),
    "writes sparse files and punches on": "truncate -s 50M sparse && rm sparse",
}
NETWORK = {
    "serves and asks on its own loopback": python(
        "import http.server, threading, urllib.request\ns = http.server.HTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)\nthreading.Thread(target=s.serve_forever, daemon=True).start()\nassert urllib.request.urlopen(f'http://127.0.0.1:{s.server_port}/notes').read() == b'words\\n'"
    ),
    "serves on every address": python(
        "s = socket.create_server(('', 0)); c = socket.create_connection(('127.0.0.1', s.getsockname()[1])); s.accept()[0].sendall(b'x'); assert c.recv(1) == b'x'"
    ),
    "sends datagrams to itself": python(
        "a, b = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in 'ab')\na.bind(('127.0.0.1', 0)); b.sendto(b'x', a.getsockname()); assert a.recv(1) == b'x'"
    ),
    "speaks over a Unix socket of its own": python(
        "import tempfile\np = tempfile.mkdtemp() + '/s'\na = socket.socket(socket.AF_UNIX); a.bind(p); a.listen()\nb = socket.socket(socket.AF_UNIX); b.connect(p); a.accept()[0].sendall(b'x'); assert b.recv(1) == b'x'"
    ),
    "speaks over a pair of sockets": python("a, b = socket.socketpair(); a.sendall(b'x'); assert b.recv(1) == b'x'"),
    "passes a descriptor": python(
        "a, b = socket.socketpair(); f = open('notes')\nsocket.send_fds(a, [b'x'], [f.fileno()]); assert os.read(socket.recv_fds(b, 1, 1)[1][0], 5) == b'words'"
    ),
    "runs an event loop": python("import asyncio\nassert asyncio.run(asyncio.sleep(0, 1)) == 1"),
    "waits with epoll and eventfd": python(
        "import select\ne = select.epoll(); r, w = os.pipe(); e.register(r, select.EPOLLIN); os.write(w, b'x'); assert e.poll(1)\nf = os.eventfd(1); assert os.eventfd_read(f) == 1"
    ),
    "asks for its addresses": python("assert socket.if_nameindex() or True; socket.getaddrinfo('localhost', 80)"),
    "picks a free port twice": python(
        "p = [socket.create_server(('127.0.0.1', 0)) for _ in 'ab']; assert len({s.getsockname()[1] for s in p}) == 2"
    ),
}
NOT_REDUCED = frozenset(
    {
        "serves and asks on its own loopback",
        "serves on every address",
        "sends datagrams to itself",
        "picks a free port twice",
        "asks for its addresses",
    }
)
"""Grade reduced has no network of its own: only Unix sockets."""
KERNEL = {
    "starts threads": python(
        "import threading\nt = [threading.Thread(target=int) for _ in range(20)]; [x.start() for x in t]; [x.join() for x in t]"
    ),
    "forks workers": python("import multiprocessing as m\nprint(m.get_context('fork').Pool(2).map(abs, [-1, -2]))"),
    "spawns processes": "for n in 1 2 3 4 5; do python3 -S -c 'print(1)' & done; wait",
    "shares memory between processes": python(
        "from multiprocessing import shared_memory as s\nm = s.SharedMemory(create=True, size=64); m.buf[0] = 1; m.close(); m.unlink()"
    ),
    "uses an anonymous file": python("f = os.memfd_create('x'); os.write(f, b'x')"),
    "asks for random bytes": python("assert len(os.urandom(16)) == len(os.getrandom(16)) == 16"),
    "opens a terminal of its own": python(
        "import pty\na, b = pty.openpty(); os.write(b, b'x\\n'); assert os.read(a, 3) == b'x\\r\\n'"
    ),
    "is its terminal's size asked": python(
        "import pty, fcntl, termios\na, b = pty.openpty(); fcntl.ioctl(b, termios.TIOCGWINSZ, bytes(8))"
    ),
    "sets timers and handles signals": python(
        "import signal, time\nr = []; signal.signal(signal.SIGALRM, lambda *a: r.append(1)); signal.setitimer(signal.ITIMER_REAL, 0.05); time.sleep(0.3); assert r"
    ),
    "lowers its own limits": "ulimit -n 64 && ulimit -c 0 && python3 -S -c 1",
    "begins a session of its own": "setsid -w true",
    "ends a child": "sleep 50 & kill $! && wait $!; test $? = 143",
    "watches files": python("l = ctypes.CDLL(None); assert l.inotify_init1(0) >= 0"),
    "compiles and loads": "if command -v cc >/dev/null; then echo 'int f(void){return 7;}' > f.c && cc -shared -fPIC -o f.so f.c && python3 -c 'import ctypes; assert ctypes.CDLL(\"./f.so\").f() == 7'; fi",
    "names its threads and asks for its limits": python(
        "import resource\nresource.getrlimit(resource.RLIMIT_NOFILE); ctypes.CDLL(None).prctl(15, b'name', 0, 0, 0)"
    ),
    "schedules itself lower": "nice -n 5 true",
}
LASTING = {
    "waits for what it has started": "(sleep 0.2; echo later > late) & wait; cat late",
    "ends in its time": "sleep 0.3",
    "says a megabyte": "head -c 1000000 /dev/zero | tr '\\0' 'x'",
    "says what is no text": "head -c 1000 /dev/urandom",
    "fails, and its words stay": "echo the words; false || true",
    "fills a part of /tmp": "head -c 20000000 /dev/zero > ${TMPDIR:-/tmp}/part && rm ${TMPDIR:-/tmp}/part",
    "takes 200 MB of memory": "python3 -c 'x = bytearray(200 << 20)'",
    "runs fifty processes one after another": "for n in $(seq 50); do true | cat; done",
    "runs twenty processes at once": "for n in $(seq 20); do sleep 0.2 & done; wait",
    "starts forty threads": "python3 -c 'import threading, time\nfor n in range(40): threading.Thread(target=time.sleep, args=(0.1,)).start()'",
    "computes for a second": "timeout 1 sh -c 'while :; do :; done'; true",
    "writes twenty megabytes into the worktree": "head -c 20000000 /dev/zero > big && rm big",
    "writes a thousand files": "for n in $(seq 1000); do : > f$n; done; ls | wc -l",
    "keeps a removed file open": "exec 3> gone; rm gone; head -c 1000000 /dev/zero >&3",
    "makes a directory that nobody reads": "mkdir d && chmod 300 d && : > d/x && chmod 700 d",
}
USES: Mapping[str, str] = {**READING, **WRITING, **NETWORK, **KERNEL, **LASTING}


def _run(at: Ground, script: str, grade: SandboxGrade, **fields: object) -> Seen:
    tree = Path(tempfile.mkdtemp(dir=at.root)) / "tree"
    tree.mkdir()
    (tree / "notes").write_text("words\n")
    said = at.run(script, grade, worktree=tree, **fields)
    return works("[exit 0]" in said, said)


def _full(script: str, **fields: object) -> Callable[[Ground], Seen]:
    def use(at: Ground) -> Seen:
        if (error := probe().error) is not None:
            return Seen(GAP, f"no full sandbox on this host: {error.what}")
        return _run(at, script, SandboxGrade.FULL, **fields)

    return use


def _reduced(script: str) -> Callable[[Ground], Seen]:
    def use(at: Ground) -> Seen:
        if (error := probe_landlock()) is not None:
            return Seen(LEFT, f"no Landlock on this host: {error.what}")
        return _run(at, script, SandboxGrade.REDUCED)

    return use


SETUPS = {
    "writes where packages are kept": "for d in .cache/pip .cache/uv .cache/npm .cargo/registry go/pkg/mod; do mkdir -p ~/$d && : > ~/$d/x || exit 1; done",
    "makes a virtual environment": "python3 -m venv --without-pip .venv && .venv/bin/python -c 1",
    "installs into the worktree": "mkdir -p node_modules/x && echo 1 > node_modules/x/index.js",
    "builds": "mkdir build && cp notes build/out && test -s build/out",
    "reads name servers and certificates": "test -e /etc/resolv.conf; ls /etc/ssl/certs > /dev/null",
    "has a home and a place for what passes": "test -w ~ && test -w ${TMPDIR:-/tmp}",
    "serves itself while it runs": NETWORK["serves and asks on its own loopback"],
    "runs several commands at once": "true & true & wait",
    "copies a template of settings": "cp notes .env && grep -q words .env",
    "makes hooks of its own": "mkdir hooks && printf '#!/bin/sh\\n' > hooks/pre-commit && chmod +x hooks/pre-commit",
    "generates code": "python3 -c 'print(\"X = 1\")' > made.py && python3 made.py",
    "finds the programs on its PATH": "command -v git && command -v python3",
    "removes what it made": "mkdir t && rm -r t",
}


def _clones(at: Ground) -> Seen:
    """A command that looks at the repository's own history, as versions by tags need it."""
    place = Path(tempfile.mkdtemp(dir=at.root))
    git(place, "init", "-q")
    git(place, "commit", "-q", "--allow-empty", "-m", "x")
    git(place, "tag", "v1.0")
    return works("v1.0" in at.run("git describe --tags", worktree=place, git_dir=place / ".git"), "git describe: v1.0")


CASES = (
    *(Case(GROUP, name, "works", _full(script), benign=True) for name, script in USES.items()),
    *(
        Case("honest agent, grade reduced", name, "works", _reduced(script), benign=True)
        for name, script in USES.items() if name not in NOT_REDUCED
    ),
    Case(GROUP, "git: asks for its version by tags", "works", _clones, benign=True),
    *(Case(SETUP, name, "works", _full(script, network=True, reach=Reach()), benign=True) for name, script in SETUPS.items()),
)  # fmt: skip
