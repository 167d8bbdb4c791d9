"""The artifact branch: plan, tests, review and screenshots of every delivery, where its pull request can link to them.

It is a branch of the target repository without history in common with the others (docs/adr/0007): one directory a
delivery, one commit for each time something is published. Links name the commit, so that what they show never changes.
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
"""The most bytes of one published file: some 50,000 lines. Whoever wants more has the command to run it again; every
clone of the repository carries these files."""

ARTIFACT_ATTEMPTS = 12
ARTIFACT_PAUSE_S = 0.25
"""The number of times a push to the artifact branch is tried while other deliveries are faster, and the longest pause
between."""


__all__ = ["artifact_files", "permalink", "publish_artifacts"]

_TRAILER = "Perdure-Artifacts: 1"
_README = """\
# Artifacts of Perdure

Plans, test reports, reviews and screenshots that pull requests of this repository link to, one directory a delivery.
The branch has nothing in common with the others and is never merged. It can be deleted: the links then end, and the
next delivery begins it anew.
"""
_CUT = b"\n\n(cut here: the file is too large to be shown)\n"
_BUSY = re.compile(r"\block|failed to update ref|stale info|fetch first|incorrect old value")
"""The messages of a remote that refuses a push because another push of the same branch is about to arrive."""
_NAME = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,200}")


def publish_artifacts(vault: Vault, url: str, branch: str, delivery: str, files: Mapping[str, bytes]) -> str:
    """Publish files as the directory `delivery` of the artifact branch and return the commit of the branch that holds
    them.

    Pushes to the repository `url`, which is the one of the vault; `vault.keys` open it. The directory holds exactly
    these files afterwards; other deliveries' directories stay. When the branch has it already, nothing is pushed and
    its tip is returned, so this can be repeated after a crash. When other deliveries push at the same time, it pauses
    and tries again, up to ARTIFACT_ATTEMPTS times. Files are cut at ARTIFACT_BYTES.

    Raises ForgeRefused (also for a branch of that name that Perdure did not begin: it is left alone), ForgeUnavailable,
    and ValueError for a name that no file or directory may have here.
    """
    _check_branch_name(vault, url, branch)
    if invalid_names := [name for name in (delivery, *files) if not _NAME.fullmatch(name)]:
        raise ValueError(f"{invalid_names[0]!r} is no name for a file or directory here")
    store = vault.objects
    directory = store.write_tree(TreeEntry(name, store.write_blob(_cut_file(data))) for name, data in files.items())
    for attempt in range(ARTIFACT_ATTEMPTS):
        if attempt:
            time.sleep(random.uniform(0, ARTIFACT_PAUSE_S))  # noqa: S311  # who is next, not a secret
        tip = vault.fetch_branch(branch)
        entries = _branch_entries(vault, url, branch, tip)
        if tip is not None and entries.get(delivery) == TreeEntry(delivery, directory, TREE):
            return tip
        entries[delivery] = TreeEntry(delivery, directory, TREE)
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


def permalink(web_url: str, commit: str, delivery: str, name: str) -> str:
    """Return the web address that shows a published file as it is in `commit`, for good. `web_url`: the page of the
    repository."""
    return f"{web_url.rstrip('/')}/blob/{commit}/{quote(delivery)}/{quote(name)}"


def _check_branch_name(vault: Vault, url: str, branch: str) -> None:
    """Raise ForgeRefused when git does not allow `branch` as the name of a branch. `url` is shown as the place."""
    if vault.git.execute("check-ref-format", f"refs/heads/{branch}", ok=(0, 1)).returncode:
        what, fix = f"{branch!r} is no name for a branch", "correct [artifacts] branch in perdure.toml"
        raise ForgeRefused(what, where=redact(url), fix=fix)


def _branch_entries(vault: Vault, url: str, branch: str, tip: str | None) -> dict[str, TreeEntry]:
    """Return the entries at the top of the artifact branch's commit `tip`, by name; for None (no such branch yet) a
    README alone.

    Raises ForgeRefused when somebody else began the branch: a first commit of it lacks Perdure's trailer.
    """
    if tip is None:
        return {"README.md": TreeEntry("README.md", vault.objects.write_blob(_README.encode()))}
    root_trailers = vault.git.text("log", "--max-parents=0", "--format=%(trailers:key=Perdure-Artifacts)%x00", tip)
    if any(root.strip() != _TRAILER for root in root_trailers.split("\0")[:-1]):
        raise ForgeRefused(
            f"the branch {branch} was not begun by Perdure, so nothing is published there",
            where=redact(url),
            fix='give [artifacts] branch in perdure.toml another name, or "" for none',
        )
    entries = {}
    for line in vault.git.execute("ls-tree", "-z", tip).names:
        facts, _, name = line.partition("\t")
        mode, _, sha = facts.split(" ")
        entries[name] = TreeEntry(name, sha, mode.lstrip("0"))
    return entries


def _cut_file(data: bytes) -> bytes:
    """Return a file's content, cut to ARTIFACT_BYTES with a note at the end that says so; no character is cut in
    two."""
    if len(data) <= ARTIFACT_BYTES:
        return data
    return data[: ARTIFACT_BYTES - len(_CUT)].decode(errors="ignore").encode() + _CUT  # no character in two
