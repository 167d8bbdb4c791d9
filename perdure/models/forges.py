"""The facts of each forge that others need: its variables, its servers, its words. Data; standard library only."""

from __future__ import annotations

from dataclasses import dataclass

Words = tuple[tuple[str, str], ...]
"""A remote's words, as a pattern → what a person can do about them. The first that fits counts."""


@dataclass(frozen=True)
class ForgeFacts:
    """One forge that Perdure speaks.

    home       its own server, which is meant where nobody says otherwise
    ssh        names of hosts that are another's ssh
    variables  what names servers and accounts; `server`: another server of it
    secrets    variables that hold tokens and keys: nothing that is started may inherit them
    tokens     those of them to name to whoever has none: for any server, and besides that for `home`
    rights     what a token there has to be allowed to do, of a repository
    refuses    words when the door stays closed to a token; declines: when it takes no commit for a branch
    """

    name: str
    guide: str
    home: str
    server: str
    variables: tuple[str, ...]
    secrets: tuple[str, ...]
    tokens: tuple[str, ...]
    rights: str
    ssh: tuple[tuple[str, str], ...] = ()
    refuses: Words = ()
    declines: Words = ()

    def tokens_at(self, host: str) -> tuple[str, ...]:
        return self.tokens if self.home.endswith(f"//{host}") else self.tokens[:1]


GITHUB = ForgeFacts(
    name="GitHub",
    guide="docs/github.md",
    home="https://github.com",
    server="PERDURE_GITHUB_URL",
    variables=("PERDURE_GITHUB_URL", "PERDURE_GITHUB_APP_ID"),
    secrets=(
        *("PERDURE_GITHUB_TOKEN", "PERDURE_GITHUB_APP_KEY"),
        *("GH_TOKEN", "GITHUB_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN"),
    ),
    tokens=("PERDURE_GITHUB_TOKEN", "GH_TOKEN"),
    rights="scope repo, or Contents, Issues and Pull requests: Read and write",
    ssh=(("ssh.github.com", "github.com"),),  # through a firewall's port 443, as GitHub documents it
    refuses=(
        (
            r"enforced SAML SSO|SAML single sign-on",
            "authorize the token for the organization's single sign-on, where it was made",
        ),
        (r"archived", "unarchive the repository, or deliver to a fork"),
        (r"IP allow list", "add this host's address to the organization's IP allow list"),
        (
            r"access .*(blocked|disabled)|is disabled|suspended",
            "its owner has to make the account, App or repository usable again",
        ),
        (
            r"write access .* not granted|permission to \S+ denied|error: 403",
            "give the token write access to it (a fine-grained token or App: Contents and Pull requests: read and "
            "write; a classic token: the repo scope)",
        ),
        (
            r"invalid username or (token|password)|authentication failed|bad credentials|error: 401",
            "the token is wrong, expired or revoked: make a new one (or a new key of the App), set "
            "PERDURE_GITHUB_TOKEN and restart the worker",
        ),
        (
            r"repository .*not found|error: 404",
            "check the name; if it is right, the token may not see this repository: add it to the token's repositories",
        ),
    ),
    declines=(
        (r"push protection|GH009", "take the secret out of the change, or allow it where the message says, then retry"),
        (r"GH001|exceeds .*file size limit", "keep the large file out of the change, or use Git LFS"),
        (
            r"without `?workflows?`? (scope|permission)",
            "give the token the workflow scope (fine-grained, App: Workflows: read and write), or keep "
            ".github/workflows out of the change",
        ),
        (
            r"GH006|GH013|protected branch|repository rule",
            "let this account bypass the rule, then retry; or set [git] branch in perdure.toml to a pattern that no "
            "rule covers, and deliver anew with --id NAME",
        ),
        (r"archived", "unarchive the repository, or deliver to a fork"),
    ),
)

FORGES = (GITHUB,)
"""The forges with accounts, the one meant by `owner/name` first. A new one: its facts here, its package, its line in
perdure/adapters/forges/select.py."""


def forge_at(host: str) -> ForgeFacts:
    """Return the forge whose own server that is, else the first one."""
    return next((forge for forge in FORGES if forge.home.endswith(f"//{host}")), FORGES[0])


def readable_issues() -> str:
    """Say where issues can be read, for errors."""
    return " and ".join(f"{forge.name} (another server of it: {forge.server})" for forge in FORGES)
