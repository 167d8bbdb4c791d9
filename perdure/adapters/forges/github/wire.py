"""The line to GitHub: PyGithub with our limits, and nothing that waits or tries again by itself."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from perdure import __version__
from perdure.models.errors import ForgeRefused
from perdure.models.limits import FORGE_SILENCE_S

if TYPE_CHECKING:
    from github import Github
    from urllib3 import Retry

API_VERSION = "2022-11-28"
"""The one that every GitHub and every supported Enterprise Server speaks."""
PER_PAGE = 100  # the most that GitHub gives


def connect(
    api: str, token: str | None = None, *, app: tuple[str, str] | None = None, silence_s: int = FORGE_SILENCE_S
) -> Github:
    """For a `with`. `app` is an App's id and private key (PEM), for what only the App itself may ask; `silence_s`,
    in seconds, ends a request."""
    import github
    from github import Auth

    from perdure.adapters.forges.github.bounded import bound

    bound()
    logging.getLogger("github").setLevel(logging.WARNING)  # below that it logs bodies, and some of them are tokens
    auth: Auth.Auth | None = Auth.Token(token) if token else None
    if app is not None:
        auth = Auth.AppAuth(app[0], app[1], jwt_expiry=300)
    return github.Github(
        auth=auth,
        base_url=api,
        timeout=silence_s,
        user_agent=f"perdure/{__version__}",
        per_page=PER_PAGE,
        retry=_one_redirect(api),
        seconds_between_requests=None,
        seconds_between_writes=None,
        api_version=API_VERSION,
    )


def _one_redirect(api: str) -> Retry:
    """No retries, and an end to redirects: GitHub needs one to where a repository or an issue is now, and PyGithub
    would follow them for ever. This is the one thing it lets us see every answer with."""
    from urllib3 import Retry

    class OneRedirect(Retry):
        redirected = False

        def is_retry(self, method: str, status_code: int, has_retry_after: bool = False) -> bool:
            again, self.redirected = self.redirected, status_code == 301
            if again and self.redirected:
                fix = "open the repository's page in a browser, and use the address it ends at"
                raise ForgeRefused("GitHub redirects us more than once", where=api, fix=fix)
            return False

    return OneRedirect(0, read=False)
