"""The request of `deliver` and `run`, checked to the end before anything is started or written."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.cli.request.options import Options
from perdure.cli.request.repository import file_at, in_working_tree, place_of, read_config
from perdure.local import access
from perdure.models.config import BUILT_IN, RepositoryConfig
from perdure.models.errors import BadInput, InvalidRequest
from perdure.models.host_config import HostConfig
from perdure.models.ids import DELIVERY_ID, issue_delivery_id, slug
from perdure.models.limits import LABEL_CHARS, LABELS_MOST, REQUEST_BYTES
from perdure.models.phases import Phase, why_not
from perdure.models.request import DeliveryRequest, parse_request

if TYPE_CHECKING:
    from perdure.adapters.git.source import Target
    from perdure.cli.request.issue import Meant

KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")


@dataclass(frozen=True, kw_only=True)
class DeliverOptions(Options):
    """The options of `perdure deliver`, and what `perdure run` adds to them.

    plan      a plan in Markdown, used instead of making one
    fix       red tests and blockers are mended, not only reported
    push      new commits are pushed although no pull request is asked for
    wordless  nobody needs to say what is wanted: an existing branch is looked at, or a plan says it
    written   settings that stand in a backlog's file, `night.yaml: config` and their text; --config counts instead
    """

    text: str | None = None
    phases: str | None = None
    plan: str | None = None
    fix: bool = True
    push: bool = False
    wordless: bool = False
    written: tuple[str, str] | None = None


@dataclass(frozen=True)
class Taken:
    """A request that can be submitted, and what was learned about it on the way.

    elsewhere          a Temporal server is configured: its workers hold the key, their hosts decide sandbox and limits
    file               the perdure.toml that counts, as people name it
    meant              the submitter's words and the issue
    repository_config  what it says; None where there is none, or the base commit is not on this machine yet
    """

    request: DeliveryRequest
    meant: Meant
    elsewhere: bool
    target: Target
    base: str
    base_sha: str
    host: HostConfig
    file: str
    repository_config: RepositoryConfig | None

    @property
    def tip(self) -> str:
        """The commit of the existing branch that is worked on; empty where that is the base."""
        return self.target.heads.branches[self.request.branch] if self.request.branch is not None else ""

    @property
    def issue_id(self) -> str:
        """The id that a delivery of the issue has when nobody gives it another."""
        return issue_delivery_id(self.request.repository, self.meant.number or 0)


def take_in(asked: DeliverOptions, env: Mapping[str, str]) -> Taken:
    """Check everything that can be checked here, the cheapest first; raises BadInput or InvalidRequest.

    Blocks on git and the network.
    """
    from perdure.cli.request.issue import check_token, meant, named_issue, repository_for

    named = named_issue(asked.issue, asked.text if asked.text is not None else asked.request)
    text = request_text(asked, needed=named is None and not asked.wordless)
    phases = parse_phases(asked.phases) if asked.phases is not None else None
    if phases is not None and (problem := why_not(phases, asked.branch)):
        raise BadInput(problem, where="--phases", fix="--phases plan,build,test,review,ship does everything")
    gates = parse_gates(",".join(asked.gate)) if asked.gate else ()
    labels = parse_labels(asked.labels)
    check_id(asked.id)
    if asked.id is not None and asked.new:
        fix = "give one of them: a name that is not taken starts another as well"
        raise BadInput("--new finds a name by itself", where="--id and --new", fix=fix)
    settings, given = asked.written or ("", None)
    if asked.config:
        settings, given = f"{asked.config} (--config)", read_config(asked.config)

    from perdure.adapters.forges.select import Forges
    from perdure.adapters.git.source import resolve
    from perdure.adapters.repository.config import load_repository_config
    from perdure.adapters.repository.host import load_host_config

    host = load_host_config(env)
    own = load_repository_config(given, str(asked.config or settings)) if given is not None else None
    if not (elsewhere := workers_elsewhere()) and asks_a_model(phases, fix=asked.fix):
        check_key(env, asked.agent or env.get("PERDURE_AGENT", "").strip())
    forges = Forges.from_environment(dict(env))  # of a copy: the worker that is started inherits the tokens
    target = resolve(repository_for(asked.repo, named, Path.cwd()), Path.cwd(), forges)
    base, base_sha = target.base(asked.base)
    if asked.branch is not None:
        check_branch(asked.branch, target, base, phases or ())
    place = place_of(target, base_sha)
    on_base = file_at(place, base_sha) if place is not None else None
    file, config = f"perdure.toml on {base}", own
    if own is not None:
        file = settings
    elif on_base is not None:
        config = load_repository_config(on_base, f"perdure.toml on {base}")
    elif place is not None:
        file = f"no perdure.toml on {base}: commands are detected"
    elif target.empty:
        file = "no perdure.toml: the repository is empty"
    if given is None and place is not None and target.checkout is not None:
        mine = in_working_tree(target.checkout)
        if mine != on_base:
            file += ", not the one in your working tree" if mine is not None else ", which your working tree has not"
    if config is not None and phases is None and (problem := why_not(config.delivery.phases, asked.branch)):
        raise BadInput(problem, where=f"{file}: [delivery] phases", fix="--phases selects others")
    selected = phases or (config.delivery.phases if config is not None else tuple(Phase))
    check_gates(gates, selected, push=asked.push)
    ships = Phase.SHIP in selected
    if (ships or asked.push) and not elsewhere:
        check_token(target.url, forges, env)
    wanted = meant(named, text, target.url, forges, elsewhere=elsewhere)
    raw = {
        "repository": target.url,
        "request": wanted.words,
        "issue": wanted.number,
        "base": asked.base,
        "branch": asked.branch,
        "phases": phases,
        "gates": gates,
        "labels": labels,
        "budget_usd": asked.budget,
        "tokens": asked.tokens,
        "questions": None if asked.questions else False,
        "model": asked.model,
        "agent": asked.agent,
        "attempts": asked.attempts,
        "after_red": asked.after_red or None,
        "config": given,
        "plan": asked.plan,
        "allow_test_changes": asked.allow_test_changes,
        "fix": asked.fix,
        "push": asked.push,
        "source": str(target.checkout) if target.checkout else None,
    }
    return Taken(_request(raw), wanted, elsewhere, target, base, base_sha, host, file, config)


def _request(raw: dict[str, Any]) -> DeliveryRequest:
    """The request, or InvalidRequest with the option that the field was given by."""
    try:
        return parse_request(raw)
    except InvalidRequest as error:
        option = error.what.partition(":")[0].removesuffix("_usd").replace("_", "-")
        raise InvalidRequest(error.what, where=f"--{option}", fix="see perdure deliver --help") from None


def request_text(asked: DeliverOptions, *, needed: bool = True) -> str:
    """The request's words: the argument, `--request`, or standard input for `-`; `needed` where no issue says it."""
    if asked.text is not None and asked.request is not None:
        raise BadInput("the request was given twice", where="TEXT and --request", fix="give one of them")
    text = asked.text if asked.text is not None else asked.request
    if text is None and needed:
        fix = 'perdure deliver "what you want", --request - to read it, or --issue 12'
        raise BadInput("no request was given", fix=fix)
    if text == "-":
        text = sys.stdin.buffer.read(REQUEST_BYTES + 1).decode(errors="replace")
    text = text or ""
    if not text.strip() and needed:
        raise BadInput("the request is empty", where="TEXT", fix='say what you want: perdure deliver "…"')
    if len(text.encode()) > REQUEST_BYTES:
        fix = "shorten it; put long material into the repository and name its path"
        raise BadInput("the request is longer than 64 KiB", where="TEXT", fix=fix)
    return text


def parse_phases(text: str) -> tuple[Phase, ...]:
    """`plan,build,test` in the order of the process."""
    known = [phase.value for phase in Phase]
    named = [name.strip().lower() for name in text.split(",") if name.strip()]
    for name in named:
        if name not in known:
            raise BadInput(f"unknown phase {name!r}", where="--phases", fix=nearest("", name, known))
    return tuple(phase for phase in Phase if phase in named)


def check_gates(gates: Sequence[str], phases: Sequence[Phase], *, push: bool) -> None:
    """Whoever asks to be asked must not wait for a question that never comes."""
    for gate, phase in (("plan", Phase.PLAN), ("pull_request", Phase.SHIP)):
        if gate in gates and phase not in phases and not (push and phase is Phase.SHIP):
            what = f"nothing would wait at {gate}: phase {phase} is not selected"
            raise BadInput(what, where="--gate", fix=f"select {phase} in --phases, or leave the gate out")


def parse_gates(text: str) -> tuple[str, ...]:
    """`plan,pull_request`; `pull-request` and `pr` are understood too."""
    known, found = ["plan", "pull_request"], []
    for name in (name.strip().lower().replace("-", "_") for name in text.split(",") if name.strip()):
        name = "pull_request" if name == "pr" else name
        if name not in known:
            raise BadInput(f"there is no gate {name[:60]!r}", where="--gate", fix=nearest("--gate", name, known))
        found.append(name)
    if not found:
        raise BadInput("no gate was named", where="--gate", fix="--gate plan, pull_request, or both with a comma")
    return tuple(gate for gate in known if gate in found)


def parse_labels(given: tuple[str, ...]) -> tuple[str, ...]:
    """Each once, in the order they were given; a comma is part of a name, as it is on a forge."""
    found = tuple(dict.fromkeys(name.strip() for name in given))
    for name in found:
        if not 0 < len(name) <= LABEL_CHARS:
            fix = f"give it 1 to {LABEL_CHARS} characters: --label team-a"
            raise BadInput(f"{name[:60]!r} cannot be a label", where="--label", fix=fix)
    if len(found) > LABELS_MOST:
        raise BadInput(f"{len(found)} labels were given", where="--label", fix=f"at most {LABELS_MOST} go together")
    return found


def check_id(id: str | None) -> None:
    if id is not None and not DELIVERY_ID.fullmatch(id):
        fix = f"use small letters, digits and dashes, at most 80: --id {slug(id, words=9, limit=80)}"
        raise BadInput(f"{id!r} cannot be a delivery id", where="--id", fix=fix)


def check_branch(branch: str, target: Target, base: str, phases: tuple[Phase, ...]) -> None:
    """BadInput for an existing branch that is not there, is the base itself, or is as the base is where these phases
    are about what differs."""
    where, known = target.url, target.heads.branches
    if branch not in known:
        raise BadInput(f"there is no branch {branch!r}", where=where, fix=nearest("--branch", branch, list(known)))
    if branch == base:
        fix = "name another branch; --base NAME compares it with another base"
        raise BadInput(f"branch {branch} is the base itself", where="--branch", fix=fix)
    differs = Phase.BUILD not in phases and (Phase.REVIEW in phases or Phase.SHIP in phases)
    if differs and known[branch] == known[base]:
        fix = "commit something and push it, or name another branch"
        raise BadInput(f"branch {branch} has no commit that {base} has not", where=where, fix=fix)


def asks_a_model(phases: tuple[Phase, ...] | None, *, fix: bool) -> bool:
    """True where a reply may have to be paid for; testing and publishing alone need none."""
    return phases is None or bool({*phases} - {Phase.TEST, Phase.SHIP}) or (Phase.TEST in phases and fix)


def check_key(env: Mapping[str, str], agent: str = "") -> None:
    """The worker that is started here inherits the key; without one it can only rehearse. `agent`: of every step, where
    somebody named one; else settings that are not read here may name some, and the key of any model will do."""
    keys: tuple[str, ...] = KEYS
    known: tuple[str, ...] = access.KEYS
    if agent:
        from perdure.adapters.agents.presets import read_preset
        from perdure.adapters.agents.proxied.upstream import ANTHROPIC, VARIABLES

        variables = VARIABLES[ANTHROPIC if agent == BUILT_IN else read_preset(agent).preset.wire]
        keys = known = tuple(variables.keys)
    if not any(env.get(name, "").strip() for name in known):
        address = next((name for name in access.NAMES if name not in access.KEYS and env.get(name, "").strip()), "")
        any_will_do = f" (where {address} needs none, any will do)" if address else ""
        raise BadInput(
            f"there is no key for the model{' of ' + agent if agent else ''}",
            where=" or ".join(keys),
            fix=f"export {keys[0]}=…{any_will_do}, or rehearse without one: perdure demo",
        )


def workers_elsewhere() -> bool:
    """True where TEMPORAL_* variables or a profile name a server: cheap, and decided the same way as connecting."""
    from perdure.local.connect import configured

    return configured() is not None


def nearest(option: str, name: str, known: list[str]) -> str:
    """Say what was probably meant, or what there is; `option` is written before it."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    if near:
        return f"did you mean {option} {near[0]}?".replace("  ", " ")
    return f"known: {', '.join(sorted(known)[:8])}" if option else f"known: {', '.join(known)}"
