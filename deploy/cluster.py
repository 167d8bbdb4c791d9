"""A real Temporal cluster in one directory, to try a fleet with on one machine: PostgreSQL and the server's four roles
as processes on loopback, with free ports of their own and the settings of this directory.

python deploy/cluster.py [DIRECTORY]     run one until Ctrl-C or SIGTERM; without a directory nothing of it stays
python deploy/cluster.py -- COMMAND ...  run one while COMMAND runs, with TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE set
python deploy/cluster.py --built         exit 0 where the server is built already, else 1

The server is built once for its version, from its Go module, below XDG_CACHE_HOME.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import json
import os
import pwd
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

SERVER_VERSION = "1.32.1"
"""The newest one that the Go of Debian's and Ubuntu's backports and of common images (1.26.8) builds."""

ROLES = ("frontend", "history", "matching", "worker")
NAMESPACE = "default"
DEPLOY = Path(__file__).resolve().parent

BUILD_FREE_BYTES = 4 * 1024**3
"""A build takes 2.5 GB of modules and compiled packages, and 250 MB of programs."""

RUN_FREE_BYTES = 512 * 1024**2
"""PostgreSQL's write-ahead log and two databases take 100 MB at first."""

START_S, STOP_S = 180, 15
"""A role serves within 12 s and stops within 4 on an idle machine; these are limits for a busy one."""

ROLE_STARTS = 3
"""Tries to start a role: in an empty database the four write its metadata at once, and one of them may end with it."""

_PR_SET_PDEATHSIG = 1


class ClusterError(Exception):
    """The cluster cannot run here, in one line that says what to do about it."""


# ── the server's programs ─────────────────────────────────────────────────────────────────────────────────────────────


def server_directory() -> Path:
    """Return the directory of the built server: `server`, `temporal-sql-tool`, `schema`."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "perdure" / f"temporal-server-{SERVER_VERSION}"


def is_built() -> bool:
    return (server_directory() / "server").is_file()


def build_server() -> Path:
    """Return the directory of the built server, after building it where it is not there: by one process at a time.

    Raises ClusterError where Go is missing or too old, the disk has no room, or the build fails.
    """
    directory = server_directory()
    if is_built():
        return directory
    if shutil.which("go") is None:
        raise ClusterError("go is not installed, with which Temporal's server is built: see https://go.dev/dl (1.26)")
    directory.mkdir(parents=True, exist_ok=True)
    require_room(directory, BUILD_FREE_BYTES)
    with open(directory / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_built():
            _build_into(directory)
    return directory


def _build_into(directory: Path) -> None:
    """Build the programs and copy the schema; `server` comes last, by which it counts as built."""
    print(f"building Temporal's server {SERVER_VERSION} into {directory}: once, five to twenty minutes", flush=True)
    module = "go.temporal.io/server"
    with tempfile.TemporaryDirectory(prefix=".building-", dir=directory) as unfinished:
        env = os.environ | {"GOBIN": unfinished}
        packages = [f"{module}/cmd/{program}@v{SERVER_VERSION}" for program in ("server", "tools/sql")]
        # With little priority: whoever waits for it may want to go on working.
        _run_build(["nice", "-n", "10", "go", "install", *packages], env)
        listed = _run_build(["go", "mod", "download", "-json", f"{module}@v{SERVER_VERSION}"], env)
        shutil.rmtree(directory / "schema", ignore_errors=True)
        shutil.copytree(Path(json.loads(listed)["Dir"]) / "schema" / "postgresql", directory / "schema")
        for path in [directory / "schema", *(directory / "schema").rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)  # those of Go's cache cannot be written, or removed
        Path(unfinished, "sql").rename(directory / "temporal-sql-tool")
        Path(unfinished, "server").rename(directory / "server")


def _run_build(command: list[str], env: dict[str, str]) -> str:
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "downloading" not in line]
        raise ClusterError(f"Temporal's server cannot be built: {(lines or ['go says nothing'])[-1]}")
    return done.stdout


def find_postgres() -> Path:
    """Return the directory of PostgreSQL's programs: the newest of Debian's, else that of `initdb` on PATH.

    Raises ClusterError where there is none.
    """
    debian = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if (path / "initdb").is_file()]
    if debian:
        return max(debian, key=lambda path: float(path.parent.name))
    if initdb := shutil.which("initdb"):
        return Path(initdb).resolve().parent
    raise ClusterError("PostgreSQL is not installed: apt-get install postgresql, or your system's package")


def find_temporal() -> Path:
    """Return the directory of the program `temporal`. Raises ClusterError where there is none."""
    bundled = Path(sys.executable).parent
    if (bundled / "temporal").is_file():
        return bundled
    if program := shutil.which("temporal"):
        return Path(program).parent
    raise ClusterError("the program temporal is not installed: make cluster installs it with Perdure's dependencies")


def require_room(directory: Path, needed: int) -> None:
    """Raise ClusterError where the disk of a directory has less room than `needed` bytes."""
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise ClusterError(f"no room on the disk: {free // 1024**2} MiB of {needed // 1024**2} are free at {directory}")


# ── the processes ─────────────────────────────────────────────────────────────────────────────────────────────────────


PORTS = range(15_000, 32_000)
"""Below those that systems give to connections, and 32,768: the server keeps its roles' ports as small integers."""


def free_ports(number: int) -> list[int]:
    """Return that many ports of 127.0.0.1 that nobody listens on."""
    free = list[int]()
    for port in random.sample(PORTS, 50 * number):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            free.append(port)
        if len(free) == number:
            return free
    raise ClusterError(f"no ports of 127.0.0.1 are free between {PORTS.start} and {PORTS.stop}")


def _end_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT, 0, 0, 0)  # PostgreSQL then leaves no shared memory


class Cluster:
    """One cluster: `start` all of it, `kill` and `start_role` or `start_postgres` as a fault wants it, and `stop`.

    All of it is in one directory, which is made where it is missing. A database that is there already is used again.
    """

    def __init__(self, directory: Path, port: int | None = None) -> None:
        self.directory, self.processes = directory, dict[str, subprocess.Popen[bytes]]()
        frontend, self._postgres_port, *more = free_ports(9)
        self.address = f"127.0.0.1:{port or frontend}"
        self._grpc_ports = dict(zip(ROLES, [port or frontend, *more], strict=False))
        self._membership_ports = dict(zip(ROLES, more[3:], strict=False))
        self._user = _other_user() if os.geteuid() == 0 else None

    def start(self) -> None:
        """Start PostgreSQL and the roles and make namespace and search attributes. Returns when it takes deliveries.

        Raises ClusterError where something is missing, a port is taken, or a part does not start.
        """
        self._server, self._postgres, self._temporal = build_server(), find_postgres(), find_temporal()
        port = int(self.address.rpartition(":")[2])
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                raise ClusterError(f"port {port} of 127.0.0.1 is taken: name another one, PORT=…, or none")
        self.directory.mkdir(parents=True, exist_ok=True)
        require_room(self.directory, RUN_FREE_BYTES)
        self._make_database()
        self.start_postgres()
        password = self._password()
        seeds = {"POSTGRES_SEEDS": "127.0.0.1", "DB_PORT": str(self._postgres_port), "SCHEMA_DIRECTORY": "schema/v12"}
        login = {"POSTGRES_USER": "temporal", "POSTGRES_PWD": password}
        self._run_script("schema.sh", seeds | login, cwd=self._server)
        settings = self.directory / "server.yaml"
        settings.touch(0o600)
        settings.write_text(json.dumps(self._settings(password), indent=1))  # JSON is YAML
        for role in ROLES:
            self.start_role(role)
        target = {"TEMPORAL_ADDRESS": self.address, "TEMPORAL_NAMESPACE": NAMESPACE}
        self._run_script("namespace.sh", target, cwd=self.directory)

    def start_role(self, role: str) -> None:
        command = [self._server / "server", "--config-file", self.directory / "server.yaml", "--allow-no-auth"]
        self._spawn(role, [*command, "start", f"--service={role}"])

    def start_postgres(self) -> None:
        """Start PostgreSQL and return when it answers: again and again, for after a SIGKILL of its first process the
        others hold its memory for about a second. Raises ClusterError when it does not."""
        data = self.directory / "postgres"
        loopback = ["-h", "127.0.0.1", "-p", str(self._postgres_port), "-k", ""]
        quick = ["-c", "dynamic_shared_memory_type=mmap", "-c", "max_connections=200"]
        end = time.monotonic() + START_S
        while not self._is_ready():
            if time.monotonic() > end:
                raise ClusterError(f"PostgreSQL does not start: {_last_line(self.directory / 'postgres.log')}")
            running = self.processes.get("postgres")
            if running is None or running.poll() is not None:
                self._spawn("postgres", [self._postgres / "postgres", "-D", data, *loopback, *quick], self._user)
            time.sleep(0.2)

    def kill(self, name: str) -> None:
        """Kill a role, or `postgres` (its first process), by SIGKILL, and wait for its end."""
        self.processes[name].kill()
        self.processes[name].wait()

    def ended(self) -> list[str]:
        """Return the names of the processes that have ended, nobody having asked for it."""
        return [name for name, process in self.processes.items() if process.poll() is not None]

    def stop(self) -> None:
        """End all processes: in order, and by SIGKILL those that have not ended by then."""
        for names, number in ((ROLES, signal.SIGTERM), (("postgres",), signal.SIGINT)):
            running = [self.processes[name] for name in names if name in self.processes]
            for process in running:
                with suppress(ProcessLookupError):
                    process.send_signal(number)
            end = time.monotonic() + STOP_S
            for process in running:
                try:
                    process.wait(max(end - time.monotonic(), 0.1))
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGQUIT if number == signal.SIGINT else signal.SIGKILL)
                    process.wait()
        self.processes.clear()

    def _spawn(self, name: str, command: list[Any], user: pwd.struct_passwd | None = None) -> None:
        """Start a process in a session of its own, so that Ctrl-C is ours; it ends with this one, however that ends."""
        with (self.directory / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_end_with_parent,
                **_as_user(user),
            )

    def _make_database(self) -> None:
        data = self.directory / "postgres"
        if (data / "PG_VERSION").exists():
            return
        password = self.directory / "password"
        password.touch(0o600)
        password.write_text(secrets.token_hex(16))
        if self._user is not None:
            data.mkdir(0o700)
            for path in (data, password):
                os.chown(path, self._user.pw_uid, self._user.pw_gid)
        login = ["--username", "temporal", "--pwfile", password, "--auth", "scram-sha-256"]
        command: list[Any] = [
            self._postgres / "initdb",
            "-D",
            data,
            *login,
            "--encoding",
            "UTF8",
            "--no-locale",
            "--no-sync",
        ]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, **_as_user(self._user))
        if done.returncode:
            shutil.rmtree(data, ignore_errors=True)
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            user = f" (as user {self._user.pw_name}, for it refuses root)" if self._user is not None else ""
            raise ClusterError(f"PostgreSQL's data cannot be made in {data}{user}: {(lines or ['?'])[-1]}")

    def _password(self) -> str:
        return (self.directory / "password").read_text().strip()

    def _run_script(self, name: str, env: dict[str, str], cwd: Path) -> None:
        """Run a script of this directory as it is shipped; a role that ends meanwhile is started again. Raises
        ClusterError with its last line when it fails, or a part of the cluster does not start."""
        path = f"{self._server}:{self._temporal}:{os.environ['PATH']}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TEMPORAL_")}
        with (self.directory / f"{name}.log").open("wb") as log:
            script = subprocess.Popen(
                ["sh", DEPLOY / name],
                cwd=cwd,
                env=kept | {"PATH": path, "TEMPORAL_CONFIG_FILE": os.devnull} | env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
        end, starts = time.monotonic() + START_S, Counter[str]()
        try:
            while script.poll() is None:
                for part in self.ended():
                    starts[part] += 1
                    if part not in ROLES or starts[part] == ROLE_STARTS:
                        last = _last_line(self.directory / f"{part}.log")
                        raise ClusterError(f"{part} does not start: {last}")
                    self.start_role(part)
                if time.monotonic() > end:
                    raise ClusterError(f"{name} has not ended after {START_S} s: {self.directory / f'{name}.log'}")
                time.sleep(0.1)
        finally:
            if script.poll() is None:
                os.killpg(script.pid, signal.SIGKILL)
            script.wait()
        if script.returncode:
            raise ClusterError(f"{name} fails: {_last_line(self.directory / f'{name}.log')}")

    def _is_ready(self) -> bool:
        """Return whether PostgreSQL answers: that its port is open says no more than that it recovers."""
        asked: list[Any] = [self._postgres / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self._postgres_port)]
        return subprocess.run(asked).returncode == 0

    def _settings(self, password: str) -> dict[str, Any]:
        """Return the server's settings, of all four roles."""

        def store(database: str, connections: int) -> dict[str, Any]:
            login = {"user": "temporal", "password": password, "databaseName": database}
            place = {"connectAddr": f"127.0.0.1:{self._postgres_port}", "connectProtocol": "tcp"}
            pool = {"maxConns": connections, "maxIdleConns": connections, "maxConnLifetime": "1h"}
            return {"sql": {"pluginName": "postgres12", **place, **login, **pool}}

        active = {"enabled": True, "initialFailoverVersion": 1, "rpcName": "frontend", "rpcAddress": self.address}
        return {
            "log": {"stdout": True, "level": "warn"},
            "persistence": {
                "defaultStore": "default",
                "visibilityStore": "visibility",
                "numHistoryShards": 4,
                "datastores": {"default": store("temporal", 20), "visibility": store("temporal_visibility", 10)},
            },
            "global": {"membership": {"maxJoinDuration": "30s", "broadcastAddress": "127.0.0.1"}},
            "services": {
                role: {
                    "rpc": {
                        "grpcPort": self._grpc_ports[role],
                        "membershipPort": self._membership_ports[role],
                        "bindOnIP": "127.0.0.1",
                    }
                }
                for role in ROLES
            },
            "clusterMetadata": {
                "enableGlobalNamespace": False,
                "failoverVersionIncrement": 10,
                "masterClusterName": "active",
                "currentClusterName": "active",
                "clusterInformation": {"active": active},
            },
            "dcRedirectionPolicy": {"policy": "noop"},
            "publicClient": {"hostPort": self.address},
            "dynamicConfigClient": {
                "filepath": str(DEPLOY / "dynamicconfig" / "perdure.yaml"),
                "pollInterval": "10s",
            },
        }


def _other_user() -> pwd.struct_passwd:
    """Return the user that PostgreSQL runs as where we are root, which it refuses: its own, else nobody."""
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise ClusterError("PostgreSQL refuses root, and there is no user postgres or nobody: run this as another user")


def _as_user(user: pwd.struct_passwd | None) -> dict[str, Any]:
    return {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _last_line(log: Path) -> str:
    """Return the last line of a log and where it is."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return f"{(lines or ['it says nothing'])[-1][:300]} ({log})"


@contextmanager
def run_cluster(directory: Path | None = None, port: int | None = None) -> Iterator[Cluster]:
    """Run a cluster, and end it on the way out. Without a directory it is in one of its own, of which nothing stays."""
    root = directory or Path(tempfile.mkdtemp(prefix="perdure-cluster-"))
    if directory is None and os.geteuid() == 0:
        root.chmod(0o711)  # PostgreSQL's user goes through it
    try:
        cluster = Cluster(root.resolve(), port)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
    finally:
        if directory is None:
            shutil.rmtree(root, ignore_errors=True)


# ── the command ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _show(cluster: Cluster) -> None:
    print(f"Temporal {SERVER_VERSION} on PostgreSQL, one process for each of {', '.join(ROLES)}: {cluster.directory}")
    print(f"  export TEMPORAL_ADDRESS={cluster.address} TEMPORAL_NAMESPACE={NAMESPACE}")
    print(
        "  perdure worker         # with a PERDURE_HOME of its own for each host of the fleet, then perdure deliver …"
    )
    print("  Ctrl-C ends it", flush=True)


def _watch(cluster: Cluster) -> NoReturn:
    """Start again what ends, and say so, until a signal comes."""
    while True:
        time.sleep(1)
        for name in cluster.ended():
            print(f"{name} has ended and is started again: {cluster.directory / f'{name}.log'}", flush=True)
            if name == "postgres":
                cluster.start_postgres()
            else:
                cluster.start_role(name)


def _end(*_: object) -> NoReturn:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # it is ending
    raise KeyboardInterrupt


def _carry_out(command: list[str], cluster: Cluster) -> int:
    """Run a command against the cluster and return its exit code; end it when we are ended."""
    env = os.environ | {"TEMPORAL_ADDRESS": cluster.address, "TEMPORAL_NAMESPACE": NAMESPACE}
    process = subprocess.Popen(command, env=env)
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise


def main(words: list[str]) -> int:
    """Run what the words say and return an exit code: the command's, 0 after a signal, 2 where it cannot run here."""
    words, command = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", type=Path, help="kept, with its database; default: one that is removed")
    parser.add_argument("--port", type=int, help="of the frontend; default: a free one")
    parser.add_argument("--built", action="store_true", help="only say by the exit code whether the server is built")
    options = parser.parse_args(words)
    if options.built:
        return 0 if is_built() else 1
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    try:
        with run_cluster(options.directory, options.port) as cluster:
            if command:
                return _carry_out(command, cluster)
            _show(cluster)
            _watch(cluster)
    except KeyboardInterrupt:
        return 0
    except (ClusterError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
