"""The line to GitHub: PyGithub with our limits, and nothing that waits or tries again by itself."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from perdure import __version__
from perdure.models.policy import FORGE_SILENCE_S

if TYPE_CHECKING:
    from github import Github

API_VERSION = "2022-11-28"
"""The one that every GitHub and every supported Enterprise Server speaks."""
PER_PAGE = 100  # the most that GitHub gives


def connect(api: str, token: str | None = None, *, app: tuple[str, str] | None = None) -> Github:
    """For a `with`. `app` is an App's id and private key (PEM), for what only the App itself may ask."""
    import github
    from github import Auth

    logging.getLogger("github").setLevel(logging.WARNING)  # below that it logs bodies, and some of them are tokens
    auth: Auth.Auth | None = Auth.Token(token) if token else None
    if app is not None:
        auth = Auth.AppAuth(app[0], app[1], jwt_expiry=300)
    return github.Github(
        auth=auth,
        base_url=api,
        timeout=FORGE_SILENCE_S,
        user_agent=f"perdure/{__version__}",
        per_page=PER_PAGE,
        retry=None,
        seconds_between_requests=None,
        seconds_between_writes=None,
        api_version=API_VERSION,
    )
