"""Facts about each forge with accounts that other modules need: its variables, servers, and what its error messages
mean. Data; standard library only."""

from __future__ import annotations

from dataclasses import dataclass

AdviceByPattern = tuple[tuple[str, str], ...]
"""Pattern of a remote's message → what a person can do about it. The first that matches counts."""


@dataclass(frozen=True)
class ForgeFacts:
    """One forge that Perdure speaks to.

    home_url          of its own server, which is meant where nobody says otherwise
    ssh_hosts         host names under which another host is reached by ssh, each with that host
    variables         what names servers and accounts; server_variable: names another server of this forge
    secret_variables  variables that hold tokens and keys: no process that is started may inherit them
    token_variables   those to name to a person who has no token: first the one for any server, then those for its own
    required_rights   what a token must be allowed to do in a repository
    access_advice     for messages of a remote that refuses access; push_advice: of one that declines a commit for a
    branch
    """

    name: str
    guide: str
    home_url: str
    server_variable: str
    variables: tuple[str, ...]
    secret_variables: tuple[str, ...]
    token_variables: tuple[str, ...]
    required_rights: str
    ssh_hosts: tuple[tuple[str, str], ...] = ()
    access_advice: AdviceByPattern = ()
    push_advice: AdviceByPattern = ()

    def token_variables_for(self, host: str) -> tuple[str, ...]:
        """Return the environment variables that can hold a token for this host: all on the forge's own server, else
        only the first."""
        return self.token_variables if self.home_url.endswith(f"//{host}") else self.token_variables[:1]


GITHUB = ForgeFacts(
    name="GitHub",
    guide="docs/github.md",
    home_url="https://github.com",
    server_variable="PERDURE_GITHUB_URL",
    variables=("PERDURE_GITHUB_URL", "PERDURE_GITHUB_APP_ID"),
    secret_variables=(
        *("PERDURE_GITHUB_TOKEN", "PERDURE_GITHUB_APP_KEY"),
        *("GH_TOKEN", "GITHUB_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN"),
    ),
    token_variables=("PERDURE_GITHUB_TOKEN", "GH_TOKEN"),
    required_rights="scope repo, or Contents, Issues and Pull requests: Read and write",
    ssh_hosts=(("ssh.github.com", "github.com"),),  # through a firewall's port 443, as GitHub documents it
    access_advice=(
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
    push_advice=(
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
            "rule covers, and deliver anew under another id",
        ),
        (r"archived", "unarchive the repository, or deliver to a fork"),
    ),
)

FORGES = (GITHUB,)
"""The forges with accounts, the one meant by `owner/name` first. For a new one: its facts here, its package, its line
in perdure/adapters/forges/select.py."""


def forge_of_host(host: str) -> ForgeFacts:
    """Return the forge whose own server this host is, else the first forge."""
    return next((forge for forge in FORGES if forge.home_url.endswith(f"//{host}")), FORGES[0])


def issue_sources() -> str:
    """Return the part of an error's text that says from which forges issues can be read."""
    return " and ".join(f"{forge.name} (another server of it: {forge.server_variable})" for forge in FORGES)
