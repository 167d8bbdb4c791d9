"""The command line as it is typed: arguments, options and help of every command.

What a command does is imported when it begins: help, shell completion and mistakes need none of it.
"""

START = "Start here"
LOOK = "Look"
DECIDE = "Decide"
STEER = "Steer"
HOST = "This host"
ADVANCED = "Advanced"
"""The panel that only `--help-advanced` shows: what a person at work on deliveries does not type."""

PANELS: dict[str, tuple[str, ...]] = {
    START: ("start:demo", "start:init", "start:deliver", "start:run", "backlog:backlog"),
    LOOK: (
        *("look:watch", "look:show", "look:list_", "look:top", "look:diff", "look:logs", "look:events"),
        *("look:turns", "look:compare", "look:report", "look:verify", "look:pulls", "look:page", "look:ui"),
    ),
    DECIDE: ("decide:approve", "decide:reject", "decide:answer", "decide:budget"),
    STEER: (
        *("steer:say", "steer:hold", "steer:resume", "steer:rewind", "steer:fork", "steer:retry"),
        *("steer:cancel", "schedules:schedules"),
    ),
    HOST: ("host:up", "host:down", "host:doctor", "host:agents", "host:gc", "host:config"),
    ADVANCED: (
        *("advanced:worker", "advanced:rehearse"),
        *("advanced:address", "advanced:temporal", "advanced:server"),
    ),
}
"""The commands of each panel in the order of `perdure --help`, as `module:object` of this package."""
