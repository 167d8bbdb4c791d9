"""Who is asking, by the token or the App's JWT they show, and what they may: as GitHub decides it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.twins.github.answers import Problem
from tests.twins.github.state import LEVELS, Person, Repository

WRITES = {"metadata": "read", "contents": "write", "issues": "write", "pull_requests": "write"}
"""What an App or a fine-grained token needs to deliver."""

TOKEN_LIFE_S = 3600
"""Of an installation's token."""

JWT_LIFE_S = 600
"""GitHub takes none that lives longer."""

CLOCK_S = 60
"""How far ahead a client's clock may be."""


class Kind(StrEnum):
    CLASSIC = "classic"
    FINE_GRAINED = "fine-grained"
    INSTALLATION = "installation"
    APP = "app"


@dataclass
class Actor:
    """
    person    who writes; for an App its bot
    scopes    of a classic token
    levels    the person's role, by repository's name in lower case; None: write everywhere
    grants    what a fine-grained token or an App may do, such as {"issues": "write"}
    ends      when the token ends, in seconds since 1970; None: never
    """

    key: str = field(repr=False)
    person: Person
    kind: Kind = Kind.CLASSIC
    scopes: tuple[str, ...] = ()
    levels: Mapping[str, str] | None = None
    grants: Mapping[str, str] = field(default_factory=dict)
    ends: float | None = None
    app: App | None = None

    @property
    def limited(self) -> bool:
        """Whether grants count, and not scopes."""
        return self.kind in (Kind.FINE_GRAINED, Kind.INSTALLATION)

    def level(self, repository: Repository) -> str:
        """The role in a repository: the better one of what the token was made with and what the person has there."""
        named = [self.levels[name] for name in _names(repository) if name in self.levels] if self.levels else []
        given = ["write"] if self.levels is None else named
        own = [level for level in LEVELS if repository.may(self.person, level)]
        return max((*given, *own), key=LEVELS.index)

    def reaches(self, repository: Repository) -> bool:
        """Whether a token with grants was made for this repository."""
        return self.levels is None or any(name in self.levels for name in _names(repository))

    def granted(self, permission: str, level: str) -> bool:
        return LEVELS.index(self.grants.get(permission, "none")) >= LEVELS.index(level)


@dataclass
class App:
    """A GitHub App, installed on `repositories` (names in lower case)."""

    id: int
    slug: str
    owner: Person
    bot: Person
    key: rsa.RSAPublicKey
    permissions: dict[str, str]
    repositories: set[str]
    installation: int
    suspended: bool = False


class Keys:
    """Every token and App that the twin knows."""

    def __init__(self) -> None:
        self.actors: dict[str, Actor] = {}
        self.apps: dict[int, App] = {}

    def add(self, actor: Actor) -> None:
        self.actors[actor.key] = actor

    def by_token(self, token: str) -> Actor | None:
        """None for one that is unknown, or has ended."""
        found = self.actors.get(token)
        return found if found is not None and (found.ends is None or found.ends > time.time()) else None

    def by_header(self, header: str | None) -> Actor | None:
        """Whoever an Authorization header names; None without one. Problem 401 for what it does not know."""
        if header is None:
            return None
        scheme, _, secret = header.partition(" ")
        if scheme.lower() not in ("bearer", "token") or not secret:
            raise Problem(401, "Bad credentials")
        if secret.count(".") == 2 and scheme.lower() == "bearer":
            return self._app(secret)
        actor = self.by_token(secret)
        if actor is None:
            raise Problem(401, "Bad credentials")
        return actor

    def _app(self, token: str) -> Actor:
        try:
            issuer = str(jwt.decode(token, options={"verify_signature": False}).get("iss"))
            app = self.apps.get(int(issuer)) if issuer.isdigit() else None
        except jwt.PyJWTError:
            app = None
        if app is None:
            raise Problem(401, "A JSON web token could not be decoded")
        try:
            claims = jwt.decode(
                token, app.key, algorithms=["RS256"], leeway=CLOCK_S, options={"require": ["iat", "exp", "iss"]}
            )
        except jwt.ExpiredSignatureError:
            raise Problem(401, "'Expiration time' claim ('exp') must be a numeric value representing the future time at"
                               " which the assertion expires") from None  # fmt: skip
        except jwt.PyJWTError:
            raise Problem(401, "A JSON web token could not be decoded") from None
        if claims["exp"] - time.time() > JWT_LIFE_S + CLOCK_S or claims["exp"] - claims["iat"] > JWT_LIFE_S + CLOCK_S:
            raise Problem(401, "'Expiration time' claim ('exp') is too far in the future")
        return Actor(f"app-{app.id}", app.bot, Kind.APP, app=app)

    def install(self, app: App, repositories: set[str], permissions: dict[str, str]) -> Actor:
        """A new token of an App's installation."""
        token = f"ghs_{secrets.token_urlsafe(27)}"
        level = "write" if "write" in permissions.values() else "read"
        levels = dict.fromkeys(repositories, level)
        ends = time.time() + TOKEN_LIFE_S
        actor = Actor(token, app.bot, Kind.INSTALLATION, levels=levels, grants=permissions, ends=ends, app=app)
        self.add(actor)
        return actor


def new_key() -> tuple[rsa.RSAPublicKey, str]:
    """An App's key: the public half, and the private one as GitHub hands it out (PEM)."""
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    return private.public_key(), pem.decode()


def _names(repository: Repository) -> set[str]:
    return {repository.full_name.lower(), *repository.names}
