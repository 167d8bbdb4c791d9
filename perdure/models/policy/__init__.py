"""Every limit, timeout and retry of the engine, each with its reason. Users' own settings: perdure.models.config."""

from __future__ import annotations

from perdure.models.policy.agent import *  # noqa: F403
from perdure.models.policy.defaults import *  # noqa: F403
from perdure.models.policy.engine import *  # noqa: F403
from perdure.models.policy.forge import *  # noqa: F403
from perdure.models.policy.inputs import *  # noqa: F403
from perdure.models.policy.local import *  # noqa: F403
from perdure.models.policy.people import *  # noqa: F403
from perdure.models.policy.sandbox import *  # noqa: F403
from perdure.models.policy.showing import *  # noqa: F403
from perdure.models.policy.verdicts import *  # noqa: F403
