"""Setup commands of a hostile commit: what they reach of the machine they run on, by themselves and by the proxy."""

from __future__ import annotations

import asyncio

from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.sandbox.reach import Reach
from perdure.adapters.sandbox.setup import CACHE_PLACES
from perdure.adapters.worker.environments import Environments
from perdure.adapters.worker.lease import Leases
from perdure.adapters.worker.workspace_setup import set_up_workspace
from perdure.models.config.repository import RepositoryConfig, SandboxGrade
from perdure.models.delivery.turn import Contract
from tests.attack.inside import Try, cases_of, connect, python, reached
from tests.attack.table import SECRET, Case, Ground, Seen, held
from tests.engine import CALC, make_target

GROUP = "hostile setup"


def _both(host: str, port: str) -> str:
    """Connects directly, and by the proxy where there is one."""
    return python(f"""
from urllib.parse import urlsplit
def by_proxy():
    proxy = urlsplit(os.environ.get("http_proxy", ""))
    s = socket.create_connection((proxy.hostname, proxy.port), 10)
    s.sendall(b"CONNECT {host}:{port} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
    return b" 200" in s.recv(200)
def directly():
    return socket.create_connection(("{host}".strip("[]"), {port}), 10)
for way in by_proxy, directly:
    try:
        print("REACHED" if way() else "refused", way.__name__)
    except Exception as e:
        print("refused", way.__name__, e)""")


def _try(what: str, host: str, port: str = "{tcp}", *, is_open: bool = True) -> Try:
    script = _both(host, port)
    return Try(f"connects to {what}", "nobody there", script, open=is_open, reduced=False, fields={"network": True})


TRIES = (
    _try("a port of this machine (127.0.0.1)", "127.0.0.1"),
    _try("a port of this machine (localhost)", "localhost"),
    _try("a port of this machine (0)", "0"),
    _try("a port of this machine (0x7f.1)", "0x7f.1"),
    _try("a port of this machine (2130706433)", "2130706433"),
    _try("a port of this machine (::ffff:127.0.0.1)", "[::ffff:127.0.0.1]", is_open=False),
    _try("a port of this machine (64:ff9b::7f00:1)", "[64:ff9b::7f00:1]", is_open=False),
    _try("the cloud's credentials (169.254.169.254)", "169.254.169.254", "80", is_open=False),
    _try("the private network (10.1.2.3)", "10.1.2.3", "80", is_open=False),
    Try("connects to an abstract socket of this machine", "other namespace",
        connect("AF_UNIX", "'\\0{abstract}'"), reduced=False, fields={"network": True}),
    Try("connects to a Unix socket of this machine", "not there",
        connect("AF_UNIX", "'{unix}'"), reduced=False, fields={"network": True}),
)  # fmt: skip


def _unlisted(at: Ground) -> Seen:
    """A public host, where `[setup] hosts` names another."""
    one = Try("", "", _both("192.0.2.77", "443"), fields={"network": True, "reach": Reach(("known.invalid",))})
    success, said = reached(one, at, SandboxGrade.FULL)
    return held(not success and "it is not in [setup] hosts" in said, said)


def _trusted(at: Ground) -> Seen:
    """That nothing is reached would be no wonder by a proxy that does not work."""
    fields = {"network": True, "reach": Reach(trusted=frozenset(["127.0.0.1"]))}
    success, said = reached(Try("", "", _both("127.0.0.1", "{tcp}"), fields=fields), at, SandboxGrade.FULL)
    return held(success and "REACHED by_proxy" in said and "REACHED directly" not in said, said)


CACHES = (".cache/pip", ".cache/uv", ".cache/npm", ".cargo/registry", "go/pkg/mod")


def _set_up(at: Ground, delivery: str, script: str, *, repository: str = "mine", branch: str = "") -> str:
    """The output of a repository's `[setup]`, for a delivery from its base or from a branch of somebody's."""
    origin = at.root / f"{repository}.git"
    if not origin.exists():
        make_target(origin, CALC)
    vault = Vault.open_or_create(at.home, str(origin))
    _, base = vault.fetch()
    workspace = Workspace.create(at.home, vault, delivery, base)
    config = RepositoryConfig.model_validate({"version": 1, "setup": {"commands": [script]}})
    terms = {"base": "main", "base_sha": base, "branch": branch or "perdure/x", "existing": bool(branch)}
    contract = Contract(delivery=delivery, repository=str(origin), request="x", config=config, **terms)  # type: ignore[arg-type]

    async def go() -> None:
        async with Leases(at.home).acquire(delivery) as lease:
            env, none = {"PATH": "/usr/local/bin:/usr/bin:/bin"}, Environments(at.home, 0)
            await set_up_workspace(at.home, workspace, lease, contract, SandboxGrade.FULL, env, none)

    asyncio.run(go())
    return (at.home.workspace(delivery) / "logs" / "setup-1.log").read_text()


def _poisoned(at: Ground, *, branch: str = "") -> Seen:
    """Another repository's setup, or that of a stranger's branch, writes to every cache; then ours looks."""
    who = "branch" if branch else "other"
    at_home = [f"$HOME/{cache}" for cache in CACHES]
    write = " && ".join(f"mkdir -p {cache} && echo evil > {cache}/{who}" for cache in at_home)
    _set_up(at, f"bad-{who}", write, repository="mine" if branch else "theirs", branch=branch)
    look = " ".join(f"{cache}/{who}" for cache in at_home)
    kept = f"test -e {at_home[0]}/kept-{who} && echo kept; mkdir -p {at_home[0]} && touch {at_home[0]}/kept-{who}"
    said = _set_up(at, f"first-{who}", f"cat {look} 2>&1; {kept}") + _set_up(
        at, f"second-{who}", f"cat {look} 2>&1; {kept}"
    )
    return held("evil" not in said and "kept" in said, said if "evil" in said or "kept" not in said else "not there")


def _linked(at: Ground) -> Seen:
    """One setup puts links to a directory of the owner in place of the caches; the next reads and writes there."""
    owner = at.root / "of-the-owner"
    owner.mkdir()
    (owner / "key").write_text(SECRET)
    places = " ".join(f"$HOME/{place}" for place in CACHE_PLACES)
    link = f"mv -T $one $one.away; rm -rf $one; ln -sT {owner} $one; ln -s {owner} $one/link"
    _set_up(at, "linking", f"for one in {places} $(find $HOME -depth -type d); do {link}; done 2>/dev/null; true")
    use = "cat $one/key $one/link/key; echo evil >$one/key; mkdir $one/link/evil"
    said = _set_up(at, "linked", f"for one in {places}; do {use}; done 2>&1; echo done")
    whole = [one.name for one in owner.iterdir()] == ["key"] and (owner / "key").read_text() == SECRET
    return held(SECRET not in said and whole and said.rstrip().endswith("done"), said.rstrip().rpartition("\n")[2])


CASES = (
    Case(GROUP, "puts links to the owner's files where packages are kept", "they lead nowhere", _linked),
    Case(GROUP, "leaves a changed package in the caches of another repository", "not there", _poisoned),
    Case(
        GROUP,
        "leaves a changed package in the caches of the base from a branch",
        "not there",
        lambda at: _poisoned(at, branch="strangers"),
    ),
    *cases_of(GROUP, TRIES),
    Case(GROUP, "connects to a host that [setup] hosts does not name", "refused by name", _unlisted),
    Case(GROUP, "connects to a host that this machine's owner named", "by the proxy alone", _trusted, benign=True),
)
