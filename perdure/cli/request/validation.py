"""Checks of the request of `deliver` and `run`, complete before anything is started or written; their parts, such as
the parsing of options, the check of the model's key and hints for misspelt names, serve other commands as well.

Adapters are imported where they are needed: loading them takes longer than finding a mistake in the options.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from perdure.cli.commands.options import OPTION_OF_FIELD, option_name
from perdure.cli.commands.start import DeliverOptions
from perdure.cli.request.repository import (
    find_local_repository,
    read_config,
    read_file_at_commit,
    read_working_tree_config,
)
from perdure.cli.screen import text_or_stdin
from perdure.local import access
from perdure.models.config.host import HostConfig
from perdure.models.config.repository import BUILT_IN, RepositoryConfig
from perdure.models.delivery.request import DeliveryRequest, parse_request
from perdure.models.errors import BadInput, InvalidRequest
from perdure.models.ids import DELIVERY_ID, issue_delivery_id, slug
from perdure.models.limits import LABEL_CHARS, LABELS_MOST, REQUEST_BYTES
from perdure.models.phases import Phase, invalid_phases_reason, unreachable_gate_reason
from perdure.models.rules.admission import delivery_refusal
from perdure.text import shorten

if TYPE_CHECKING:
    from perdure.adapters.git.target import TargetRepository
    from perdure.cli.request.issue import RequestedWork

KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")


@dataclass(frozen=True)
class CheckedRequest:
    """A request that can be submitted, and what was learned about it on the way.

    elsewhere          a Temporal server is configured: its workers hold the key, their hosts decide sandbox and limits
    file               the perdure.toml that counts, as people name it
    work               the submitter's text and the issue
    repository_config  what it says; None where there is none, or the base commit is not on this machine yet
    """

    request: DeliveryRequest
    work: RequestedWork
    elsewhere: bool
    target: TargetRepository
    base: str
    base_sha: str
    host: HostConfig
    file: str
    repository_config: RepositoryConfig | None

    @property
    def tip(self) -> str:
        """Return the newest commit of the existing branch that is worked on; empty where the base is worked on."""
        return self.target.heads.branches[self.request.branch] if self.request.branch is not None else ""

    @property
    def issue_id(self) -> str:
        """Return the id that a delivery of the issue has when no other is given."""
        return issue_delivery_id(self.request.repository, self.work.number or 0)


def check_request(options: DeliverOptions, env: Mapping[str, str]) -> CheckedRequest:
    """Check a request completely, the cheapest first, and return what can be submitted. Starts and writes nothing.

    Checks options, key, repository, branches, settings, gates, token and issue. Blocks on git and the network. Raises
    BadInput or InvalidRequest when one of them is wrong, and another PerdureError when the repository or forge cannot
    be read.
    """
    from perdure.cli.request.issue import check_token, choose_repository, find_requested_work, parse_issue_name

    issue_name = parse_issue_name(options.issue, options.text if options.text is not None else options.request)
    text = request_text(options, is_required=issue_name is None and not options.wordless)
    filled_fields = parse_options(options, DeliveryRequest)
    phases: tuple[Phase, ...] | None = filled_fields.get("phases")
    _check_admission(DeliveryRequest.model_construct(**{"repository": ".", "request": text} | filled_fields))
    check_id(options.id)
    if options.id is not None and options.new:
        fix = "give one of them: a name that is not taken starts another as well"
        raise BadInput("--new finds a name by itself", where="--id and --new", fix=fix)
    settings_name, settings_text = options.written or ("", None)
    if options.config:
        settings_name, settings_text = f"{options.config} (--config)", filled_fields["config"]

    from perdure.adapters.forges.select import Forges
    from perdure.adapters.git.target import resolve_repository
    from perdure.adapters.repository.config import load_repository_config
    from perdure.adapters.repository.host import load_host_config

    host = load_host_config(env)
    option_config = (
        load_repository_config(settings_text, str(options.config or settings_name))
        if settings_text is not None
        else None
    )
    if not (elsewhere := workers_elsewhere()) and needs_model(phases, fix=options.fix):
        check_key(env, options.agent or env.get("PERDURE_AGENT", "").strip())
    forges = Forges.from_environment(
        dict(env)
    )  # a copy: this removes the tokens from it, and a worker that is started has to inherit them
    target = resolve_repository(choose_repository(options.repo, issue_name, Path.cwd()), Path.cwd(), forges)
    base, base_sha = target.base_branch(options.base, field="--base")
    if options.branch is not None:
        check_branch(options.branch, target, base, phases or ())
    local_repository = find_local_repository(target, base_sha)
    base_text = read_file_at_commit(local_repository, base_sha) if local_repository is not None else None
    file, config = f"perdure.toml on {base}", option_config
    if option_config is not None:
        file = settings_name
    elif base_text is not None:
        config = load_repository_config(base_text, f"perdure.toml on {base}")
    elif local_repository is not None:
        file = f"no perdure.toml on {base}: commands are detected"
    elif target.empty:
        file = "no perdure.toml: the repository is empty"
    if settings_text is None and local_repository is not None and target.checkout is not None:
        working_text: str | None = ""
        with suppress(BadInput):  # what is not committed does not count, whatever is wrong with it
            working_text = read_working_tree_config(target.checkout)
        if working_text != base_text:
            file += (
                ", not the one in your working tree"
                if working_text is not None
                else ", which your working tree has not"
            )
    if (
        config is not None
        and phases is None
        and (problem := invalid_phases_reason(config.delivery.phases, options.branch))
    ):
        raise BadInput(problem, where=f"{file}: [delivery] phases", fix="--phases selects others")
    selected = phases or (config.delivery.phases if config is not None else tuple(Phase))
    check_gates(filled_fields.get("gates", ()), selected, push=options.push)
    ships = Phase.SHIP in selected
    if (ships or options.push) and not elsewhere:
        check_token(target.url, forges, env)
    work = find_requested_work(issue_name, text, target.url, forges, elsewhere=elsewhere)
    raw = filled_fields | {
        "repository": target.url,
        "request": work.text,
        "issue": work.number,
        "config": settings_text,
        "source": str(target.checkout) if target.checkout else None,
    }
    return CheckedRequest(_parse_request(raw), work, elsewhere, target, base, base_sha, host, file, config)


def _parse_request(raw: dict[str, Any]) -> DeliveryRequest:
    """Parse the request and return it, when it can be admitted; raise InvalidRequest or BadInput with the option that
    the field was given by."""
    try:
        request = parse_request(raw)
    except InvalidRequest as error:
        field = error.what.partition(":")[0].partition(".")[0]
        raise InvalidRequest(error.what, where=option_name(field), fix="see perdure deliver --help") from None
    _check_admission(request)
    return request


_ADMISSION_FIXES = {
    "phases": "--phases plan,build,test,review,ship does everything",
    "gates": "select its phase in --phases, or leave the gate out",
}


def _check_admission(request: DeliveryRequest) -> None:
    """Raise BadInput, with the option of the field, for a request that the workflow would refuse."""
    if reason := delivery_refusal(request):
        field, _, problem = reason.partition(": ")
        fix = _ADMISSION_FIXES.get(field, "see perdure deliver --help")
        raise BadInput(problem, where=option_name(field), fix=fix)


def request_text(options: DeliverOptions, *, is_required: bool = True) -> str:
    """Return the request's text: the argument, `--request`, or standard input for `-`; empty where there is none.

    Raises BadInput for two texts, one over 64 KiB and, with `is_required`, for none: no issue says then what is wanted.
    """
    if options.text is not None and options.request is not None:
        raise BadInput("the request was given twice", where="TEXT and --request", fix="give one of them")
    text = options.text if options.text is not None else options.request
    if text is None and is_required:
        fix = 'perdure deliver "what you want", --request - to read it, or --issue 12'
        raise BadInput("no request was given", fix=fix)
    text = text_or_stdin(text or "", REQUEST_BYTES)
    if not text.strip() and is_required:
        raise BadInput("the request is empty", where="TEXT", fix='say what you want: perdure deliver "…"')
    if len(text.encode()) > REQUEST_BYTES:
        fix = "shorten it; put long material into the repository and name its path"
        raise BadInput("the request is longer than 64 KiB", where="TEXT", fix=fix)
    return text


def parse_phases(text: str) -> tuple[Phase, ...]:
    """Parse `plan,build,test` and return the phases in the order of the process. Raises BadInput for an unknown one."""
    names = [phase.value for phase in Phase]
    selected = [name.strip().lower() for name in text.split(",") if name.strip()]
    for name in selected:
        if name not in names:
            raise BadInput(f"unknown phase {name!r}", where="--phases", fix=suggest_name("", name, names))
    return tuple(phase for phase in Phase if phase in selected)


def check_gates(gates: Sequence[str], phases: Sequence[Phase], *, push: bool) -> None:
    """Raise BadInput for a gate whose phase is not selected: nothing would ever wait there.

    With `push`, gate pull_request does not need phase ship.
    """
    if reason := unreachable_gate_reason(gates, phases, push=push):
        raise BadInput(reason, where=option_name("gates"), fix=_ADMISSION_FIXES["gates"])


def parse_gates(text: str) -> tuple[str, ...]:
    """Parse `plan,pull_request` and return the gates in this order; `pull-request` and `pr` are understood too.

    Raises BadInput for an unknown gate, or none.
    """
    names, gates = ["plan", "pull_request"], []
    for name in (name.strip().lower().replace("-", "_") for name in text.split(",") if name.strip()):
        name = "pull_request" if name == "pr" else name
        if name not in names:
            raise BadInput(
                f"there is no gate {shorten(name, 60)!r}", where="--gate", fix=suggest_name("--gate", name, names)
            )
        gates.append(name)
    if not gates:
        raise BadInput("no gate was named", where="--gate", fix="--gate plan, pull_request, or both with a comma")
    return tuple(gate for gate in names if gate in gates)


def parse_labels(labels: Sequence[str]) -> tuple[str, ...]:
    """Return each label once, in the order they were given; a comma is part of a label, as it is on a forge.

    Raises BadInput for a label that is empty or too long, and for too many.
    """
    distinct = tuple(dict.fromkeys(name.strip() for name in labels))
    for name in distinct:
        if not 0 < len(name) <= LABEL_CHARS:
            fix = f"give it 1 to {LABEL_CHARS} characters: --label team-a"
            raise BadInput(f"{shorten(name, 60)!r} cannot be a label", where="--label", fix=fix)
    if len(distinct) > LABELS_MOST:
        raise BadInput(f"{len(distinct)} labels were given", where="--label", fix=f"at most {LABELS_MOST} go together")
    return distinct


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "phases": parse_phases,
    "gates": lambda lists: parse_gates(",".join(lists)),
    "labels": parse_labels,
    "questions": lambda no_questions: not no_questions,
    "config": read_config,
}
"""By field of a request, how the option that fills it is checked and parsed; of other options the value is taken."""


def parse_options(options: object, request: type[BaseModel]) -> dict[str, Any]:
    """Return the fields of this type of request that are filled by options; an option that was not typed fills none.

    Raises BadInput for an option that cannot be parsed.
    """
    filled_fields = {}
    for field in request.model_fields:
        name = OPTION_OF_FIELD.get(field, field)
        value, default = getattr(options, name, None), getattr(type(options), name, None)
        if value not in (default, []):
            filled_fields[field] = _PARSERS[field](value) if field in _PARSERS else value
    return filled_fields


def check_id(id: str | None) -> None:
    """Raise BadInput for an id that cannot be a delivery's; None is fine."""
    if id is not None and not DELIVERY_ID.fullmatch(id):
        fix = f"use small letters, digits and dashes, at most 80: --id {slug(id, max_words=9, max_chars=80)}"
        raise BadInput(f"{id!r} cannot be a delivery id", where="--id", fix=fix)


def check_branch(branch: str, target: TargetRepository, base: str, phases: tuple[Phase, ...]) -> None:
    """Raise BadInput for an existing branch that is missing, is the base, or has no commit of its own where one is
    needed.

    One is needed where the phases review or ship, and do not build.
    """
    url, heads = target.url, target.heads.branches
    if branch not in heads:
        raise BadInput(f"there is no branch {branch!r}", where=url, fix=suggest_name("--branch", branch, list(heads)))
    if branch == base:
        fix = "name another branch; --base NAME compares it with another base"
        raise BadInput(f"branch {branch} is the base itself", where="--branch", fix=fix)
    needs_difference = Phase.BUILD not in phases and (Phase.REVIEW in phases or Phase.SHIP in phases)
    if needs_difference and heads[branch] == heads[base]:
        fix = "commit something and push it, or name another branch"
        raise BadInput(f"branch {branch} has no commit that {base} has not", where=url, fix=fix)


def needs_model(phases: tuple[Phase, ...] | None, *, fix: bool) -> bool:
    """Return whether a model may be called for these phases (None: all); test and ship alone need none.

    Phase test needs one with `fix`: the model fixes what is red.
    """
    return phases is None or bool({*phases} - {Phase.TEST, Phase.SHIP}) or (Phase.TEST in phases and fix)


def check_key(env: Mapping[str, str], agent: str = "") -> None:
    """Raise BadInput where the environment has no key for the model: the worker that is started here inherits it.

    agent  the agent of every step: a key for its model is needed, and an unknown agent is BadInput, too; empty:
           settings that are not read here may name agents, and a key of any model will do
    """
    shown_keys: tuple[str, ...] = KEYS
    accepted: tuple[str, ...] = access.MODEL_KEYS
    if agent:
        from perdure.adapters.agents.presets import read_preset
        from perdure.adapters.agents.proxied.upstream import ANTHROPIC, WIRE_VARIABLES

        variables = WIRE_VARIABLES[ANTHROPIC if agent == BUILT_IN else read_preset(agent).preset.wire]
        shown_keys = accepted = tuple(variables.key_headers)
    if not any(env.get(name, "").strip() for name in accepted):
        address = next(
            (name for name in access.MODEL_VARIABLES if name not in access.MODEL_KEYS and env.get(name, "").strip()), ""
        )
        any_will_do = f" (where {address} needs none, any will do)" if address else ""
        raise BadInput(
            f"there is no key for the model{' of ' + agent if agent else ''}",
            where=" or ".join(shown_keys),
            fix=f"export {shown_keys[0]}=…{any_will_do}, or rehearse without one: perdure demo",
        )


def workers_elsewhere() -> bool:
    """Return whether TEMPORAL_* variables or a profile name a server, whose workers then do the work.

    Decided as for connecting, but without a call.
    """
    from perdure.local.connect import external_server_config

    return external_server_config() is not None


def suggest_name(option: str, name: str, known: list[str]) -> str:
    """Return a hint: the known name most similar to `name`, with `option` before it, or else the known names."""
    similar = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    if similar:
        return f"did you mean {option} {similar[0]}?".replace("  ", " ")
    return f"known: {', '.join(sorted(known)[:8])}" if option else f"known: {', '.join(known)}"
