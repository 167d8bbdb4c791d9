"""The artifact branch: plan, tests, review and screenshots of every delivery, where its pull request can link to them.

A branch of the target repository without history in common with the others (docs/adr/0007): one directory a delivery,
one commit whenever one is published. Links name the commit, so that what they show never changes.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping
from urllib.parse import quote

from perdure.adapters.forges.reports import artifact_files
from perdure.adapters.git.branch import push_commit
from perdure.adapters.git.command import redact
from perdure.adapters.git.object_store import TREE, TreeEntry
from perdure.adapters.git.vault import Vault
from perdure.models.errors import ForgeRefused, ForgeUnavailable

ARTIFACT_BYTES = 5_000_000
"""Of one published file: some 50,000 lines. Who reads more has the command to run it again; every clone carries it."""

ARTIFACT_ATTEMPTS = 12
ARTIFACT_PAUSE_S = 0.25
"""Tries of a push to the artifact branch while other deliveries are faster, and the longest pause between."""


__all__ = ["artifact_files", "permalink", "publish"]

_TRAILER = "Perdure-Artifacts: 1"
_README = """\
# Artifacts of Perdure

Plans, test reports, reviews and screenshots that pull requests of this repository link to, one directory a delivery.
The branch has nothing in common with the others and is never merged. It can be deleted: the links then end, and the
next delivery begins it anew.
"""
_CUT = b"\n\n(cut here: the file is too large to be shown)\n"
_BUSY = re.compile(r"\block|failed to update ref|stale info|fetch first|incorrect old value")
"""Words of a remote while somebody else's push of the same branch is about to arrive."""
_NAME = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,200}")


def publish(vault: Vault, url: str, branch: str, delivery: str, files: Mapping[str, bytes]) -> str:
    """Make `<delivery>/` on the artifact branch hold exactly these files; the commit that does.

    One that does already is adopted, so that it can be repeated after a crash. Other deliveries that publish at the
    same time are waited for. `url`: the repository, which is the vault's; `vault.keys` open it. Files are cut at
    ARTIFACT_BYTES. Raises ForgeRefused (also for a branch of that name that Perdure did not begin: it is left alone),
    ForgeUnavailable.
    """
    _check(vault, url, branch)
    if odd := [name for name in (delivery, *files) if not _NAME.fullmatch(name)]:
        raise ValueError(f"{odd[0]!r} is no name for a file or directory here")
    store = vault.objects
    content = store.write_tree(TreeEntry(name, store.write_blob(_bounded(data))) for name, data in files.items())
    for attempt in range(ARTIFACT_ATTEMPTS):
        if attempt:
            time.sleep(random.uniform(0, ARTIFACT_PAUSE_S))  # noqa: S311  # who is next, not a secret
        tip = vault.fetch_branch(branch)
        entries = _entries(vault, url, branch, tip)
        if tip is not None and entries.get(delivery) == TreeEntry(delivery, content, TREE):
            return tip
        entries[delivery] = TreeEntry(delivery, content, TREE)
        message = f"Artifacts of {delivery}\n\n{_TRAILER}\nPerdure-Delivery: {delivery}"
        commit = store.write_commit(store.write_tree(entries.values()), [tip] if tip else [], message)
        try:
            push_commit(vault, url, commit, branch, tip)
        except ForgeRefused as refusal:
            if vault.fetch_branch(branch) == tip and not _BUSY.search(str(refusal)):
                raise
            continue  # another delivery was faster
        return commit
    raise ForgeUnavailable(f"{ARTIFACT_ATTEMPTS} times another delivery was faster on {branch}", where=redact(url))


def permalink(web: str, commit: str, delivery: str, name: str) -> str:
    """Return the address at which a browser shows a published file, for good. `web`: the page of the repository."""
    return f"{web.rstrip('/')}/blob/{commit}/{quote(delivery)}/{quote(name)}"


def _check(vault: Vault, url: str, branch: str) -> None:
    if vault.git.execute("check-ref-format", f"refs/heads/{branch}", ok=(0, 1)).returncode:
        what, fix = f"{branch!r} is no name for a branch", "correct [artifacts] branch in perdure.toml"
        raise ForgeRefused(what, where=redact(url), fix=fix)


def _entries(vault: Vault, url: str, branch: str, tip: str | None) -> dict[str, TreeEntry]:
    """Return what the branch holds now, by name. ForgeRefused when somebody else has begun it."""
    if tip is None:
        return {"README.md": TreeEntry("README.md", vault.objects.write_blob(_README.encode()))}
    begun = vault.git.text("log", "--max-parents=0", "--format=%(trailers:key=Perdure-Artifacts)%x00", tip)
    if any(root.strip() != _TRAILER for root in begun.split("\0")[:-1]):
        raise ForgeRefused(
            f"the branch {branch} was not begun by Perdure, so nothing is published there",
            where=redact(url),
            fix='give [artifacts] branch in perdure.toml another name, or "" for none',
        )
    found = {}
    for line in vault.git.execute("ls-tree", "-z", tip).names:
        facts, _, name = line.partition("\t")
        mode, _, sha = facts.split(" ")
        found[name] = TreeEntry(name, sha, mode.lstrip("0"))
    return found


def _bounded(data: bytes) -> bytes:
    if len(data) <= ARTIFACT_BYTES:
        return data
    return data[: ARTIFACT_BYTES - len(_CUT)].decode(errors="ignore").encode() + _CUT  # no character in two
