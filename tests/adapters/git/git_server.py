"""A git server over HTTP in a thread of its own, for tests that call git as the engine does: synchronously."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from perdure.adapters.git.credentials import Credential
from tests.twins.github import smart_http
from tests.twins.github.smart_http import Cut, Moment, Moved, Refusal, SmartHTTP, Visit

TOKEN = "ghp_TheTokenOfTheseTests0123456789"


@dataclass
class GitServer:
    """Bare repositories below `root` as `owner/name.git`, private: all of them want `TOKEN`.

    tls      a file with a certificate and its key: then the server speaks https
    answers  a repository's name → what is answered instead of it; a `str` is where a redirect leads
    """

    root: Path
    answers: dict[str, Refusal | Moved] = field(default_factory=dict)
    redirect: str = ""
    visits: list[Visit] = field(default_factory=list)
    disturb: Callable[[Visit, Moment], web.Response | Cut | None] = lambda visit, moment: None
    pause_s: float = 0.0
    tls: Path | None = None
    url: str = ""

    def __enter__(self) -> GitServer:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(30)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    def credential(self, url: str) -> Credential | None:
        """This server's keys, as a Keyring has them."""
        return Credential(self.url, "x-access-token", TOKEN) if url.startswith(f"{self.url}/") else None

    def home_server(self) -> str:
        return self.url

    @property
    def passwords(self) -> set[str | None]:
        return {visit.password for visit in self.visits}

    async def _start(self) -> None:
        app = web.Application()
        if self.redirect:
            app.router.add_route("*", "/{path:.*}", self._elsewhere)
        SmartHTTP(self._allowed, disturb=self._disturbed).add_routes(app)
        app.router.add_post("/{owner}/{name}/info/lfs/objects/batch", self._find_objects)
        app.router.add_route("*", "/{owner}/{name}/info/lfs/objects/{oid}", self._move_object)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        context = None
        if self.tls is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(self.tls)
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context).start()
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _find_objects(self, request: web.Request) -> web.Response:
        """Answer git-lfs about objects: where they are read from or written to, or that one is missing."""
        password = request.headers.get("Authorization", "")
        self.visits.append(Visit("lfs", False, "", password))
        if not password:
            return web.Response(status=401, headers={"LFS-Authenticate": 'Basic realm="x"'})
        asked = await request.json()
        objects, header = [], {"Authorization": password}
        for item in asked["objects"]:
            href = f"{self.url}{request.path.removesuffix('batch')}{item['oid']}"
            there, has = self._object(request.path, item["oid"]).exists(), {"href": href, "header": header}
            if asked["operation"] == "upload":
                objects.append({**item, "actions": {} if there else {"upload": has}})
            elif there:
                objects.append({**item, "actions": {"download": has}})
            else:
                objects.append({**item, "error": {"code": 404, "message": "Object does not exist on the server"}})
        return web.json_response({"objects": objects}, content_type="application/vnd.git-lfs+json")

    async def _move_object(self, request: web.Request) -> web.StreamResponse:
        place = self._object(request.path, request.match_info["oid"])
        if request.method == "PUT":
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(await request.read())
            return web.Response()
        response = web.StreamResponse()
        await response.prepare(request)
        with place.open("rb") as data:
            while piece := data.read(1024**2):
                await response.write(piece)
                await asyncio.sleep(self.pause_s)
        return response

    def _object(self, path: str, oid: str) -> Path:
        return self.root / path[1:].partition("/info/")[0] / "lfs" / "objects" / oid[:2] / oid[2:4] / oid

    async def _elsewhere(self, request: web.Request) -> web.Response:
        return web.Response(status=301, headers={"Location": f"{self.redirect}{request.path_qs}"})

    async def _disturbed(self, visit: Visit, moment: Moment) -> web.Response | Cut | None:
        await asyncio.sleep(self.pause_s)
        return self.disturb(visit, moment)

    def _allowed(self, visit: Visit) -> Path | Refusal | Moved:
        self.visits.append(visit)
        answer = self.answers.get(visit.repository)
        if isinstance(answer, Moved):
            return answer
        if visit.password is None:
            return smart_http.ASK
        if visit.password != TOKEN:
            return smart_http.BAD_CREDENTIALS
        place = self.root / f"{visit.repository}.git"
        return answer or (place if place.exists() else smart_http.NOT_FOUND)


def certificate(at: Path) -> Path:
    """A certificate for 127.0.0.1 that nobody has signed but itself, with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    packed = key.private_bytes(serialization.Encoding.PEM, *plain)
    at.write_bytes(made.public_bytes(serialization.Encoding.PEM) + packed)
    return at
