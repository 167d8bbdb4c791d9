"""The activities, and which of them run on which task queue; worker.py registers them. Each has one effect, looks first
whether it has happened already, and decides nothing about order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from activities.backlog import BacklogActivities, SignItemRequestActivity, StackActivity
from activities.close import CloseActivity
from activities.commit import CommitActivity
from activities.concurrency_limit import ConcurrencyLimitActivity
from activities.delivery_queries import QueryActivities
from activities.follow_base import FollowActivities
from activities.forge import ForgeActivities
from activities.forking import RewindTargetActivity
from activities.inspect_change import CapturePagesActivity, InspectChangeActivity
from activities.landing import LandActivity, RebaseActivity
from activities.notify import NoticeActivities
from activities.parallel_builds import PlanTaskActivities, TakeAttemptActivity
from activities.prepare import PrepareActivity
from activities.run_tests import RunTestsActivity
from activities.signal_origin import SignalOriginActivity
from activities.turns import turn_activities
from activities.workflow_lookup import find_host, last_table, look_for, prioritise_delivery, resume_point
from activities.workflow_origin import OriginInterceptor as OriginInterceptor
from activities.workflow_origin import PreviousRunActivity
from perdure.adapters.worker.host import Host
from perdure.models.limits import TASK_QUEUE

Activities = list[Callable[..., Any]]


def activities_by_queue(host: Host) -> dict[str, tuple[Activities, int]]:
    """Return, by task queue, what a worker of this host runs, and how many at once. A publisher only publishes: its
    worker alone holds the forge's token."""
    home, slots = host.home, host.config.slots
    if host.publishes_only:
        return {host.publisher_queue: (publisher_activities(host), slots)}
    return {
        TASK_QUEUE: (any_host_activities(host), slots),
        home.queue(): (workspace_activities(host), slots),
        home.command_queue(): (command_activities(host), host.command_slots.count),
    }


def any_host_activities(host: Host) -> Activities:
    """Return the activities that any host may run, for the common task queue `perdure`."""
    notices = NoticeActivities(host)
    return [
        PrepareActivity(host).prepare,
        CloseActivity(host).close,
        QueryActivities(host).read_issue,
        notices.has_subscribers,
        notices.notice_addresses,
        notices.notify,
        last_table,
        SignItemRequestActivity(host).sign_item_request,
        SignItemRequestActivity(host).sign_item_request_begun_before,
        BacklogActivities(host).open_backlog,
        FollowActivities(host).follow,
        FollowActivities(host).check_landed,
        look_for,
        find_host,
        PreviousRunActivity(host.accepted_runs).former_run,
        SignalOriginActivity(host.accepted_runs).signal_origin,
        prioritise_delivery,
        resume_point,
    ]


def publisher_activities(host: Host) -> Activities:
    """Return the activities that need the forge's token: for a queue of their own when the host's configuration names a
    publisher, else for each host's own queue."""
    forge = ForgeActivities(host)
    return [
        forge.check_access,
        ConcurrencyLimitActivity(host).find_room,
        forge.comment,
        forge.publish_artifacts,
        forge.open_pull_request,
        QueryActivities(host).verify_published,
        forge.push_branch,
        LandActivity(host).land,
        BacklogActivities(host).make_branch,
        BacklogActivities(host).backlog_room,
        BacklogActivities(host).close_backlog,
        FollowActivities(host).move_branch,
        StackActivity(host).look_at_stack,
    ]


def command_activities(host: Host) -> Activities:
    """Return the activities that run a repository's tests and application, for a queue of this host with as many slots
    as commands may run at once: turns that wait for a model do not take them."""
    return [RunTestsActivity(host).run_tests, CapturePagesActivity(host).capture_pages]


def workspace_activities(host: Host) -> Activities:
    """Return the activities that need the delivery's workspace, for this host's own queue. When no publisher is
    configured, those of `publisher_activities` are among them; with a publisher only `land`, for tasks that land in the
    vault. Those of `command_activities` are among them: a delivery that an older worker prepared names no other
    queue."""
    queries, specialists = QueryActivities(host), PlanTaskActivities(host)
    return [
        *([LandActivity(host).land] if host.publisher_queue else publisher_activities(host)),
        PrepareActivity(host).prepare,
        SignItemRequestActivity(host).sign_item_request,
        BacklogActivities(host).open_backlog,
        FollowActivities(host).follow,
        FollowActivities(host).check_landed,
        specialists.split_plan,
        specialists.take_tasks,
        TakeAttemptActivity(host).take_attempt,
        *turn_activities(host),
        CommitActivity(host).commit,
        RebaseActivity(host).rebase,
        *command_activities(host),
        InspectChangeActivity(host).inspect_change,
        CloseActivity(host).close,
        *(
            queries.read_page,
            queries.spent,
            queries.store_text,
            queries.check_plan,
            queries.verify,
            RewindTargetActivity(host).aim,
        ),
    ]
