"""One effect each, thin, named after the step. They look before they act and decide nothing about order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from activities.aiming import Aiming
from activities.attempts import Attempts
from activities.backlog import Backlogs
from activities.capture_pages import Pages
from activities.close import Closing
from activities.commit import Commits
from activities.follow import Following
from activities.forge import Publishing
from activities.former import former_run
from activities.inspect_change import Inspection
from activities.land import LandingHere
from activities.last_table import last_table
from activities.look import look_for, resume_point
from activities.notify import Notices
from activities.prepare import Preparation
from activities.prioritise import prioritise_delivery
from activities.questions import Questions
from activities.rebase import Rebasing
from activities.room import Rooms
from activities.run_tests import Testing
from activities.specialists import Specialists
from activities.stack import Stacking
from activities.turns import turns
from activities.vouch import Vouching
from perdure.adapters.worker.host import Host

Activities = list[Callable[..., Any]]


def anywhere(host: Host) -> Activities:
    """Return what any host may carry out: queue `perdure`."""
    notices = Notices(host)
    return [
        Preparation(host).prepare,
        Closing(host).close,
        notices.notice_addresses,
        notices.notify,
        last_table,
        Vouching(host).vouch,
        Backlogs(host).open_backlog,
        Following(host).follow,
        Following(host).check_landed,
        look_for,
        former_run,
        prioritise_delivery,
        resume_point,
    ]


def publishing(host: Host) -> Activities:
    """Return what needs the forge's token: a queue of its own where a publisher is configured, else this host's."""
    forge = Publishing(host)
    return [
        forge.check_access,
        Rooms(host).find_room,
        forge.comment,
        forge.publish_artifacts,
        forge.open_pull_request,
        Questions(host).verify_published,
        forge.push_branch,
        LandingHere(host).land,
        Backlogs(host).make_branch,
        Backlogs(host).backlog_room,
        Backlogs(host).close_backlog,
        Following(host).move_branch,
        Stacking(host).look_at_stack,
    ]


def here(host: Host) -> Activities:
    """Return what needs the delivery's workspace: this host's own queue."""
    asked, specialists = Questions(host), Specialists(host)
    return [
        *([LandingHere(host).land] if host.publisher else publishing(host)),
        Preparation(host).prepare,
        specialists.split_plan,
        specialists.take_tasks,
        Attempts(host).take_attempt,
        *turns(host),
        Commits(host).commit,
        Rebasing(host).rebase,
        Testing(host).run_tests,
        Inspection(host).inspect_change,
        Pages(host).capture_pages,
        Closing(host).close,
        *(asked.read, asked.spent, asked.keep, asked.check_plan, asked.verify, Aiming(host).aim),
    ]
