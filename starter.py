"""Submit one request and wait for its pull request: copy this into your own program.

python starter.py https://github.com/me/durations "Make parse_duration accept '1h30m'"
"""

from __future__ import annotations

import asyncio
import os
import sys

from temporalio.client import Client
from temporalio.envconfig import ClientConfig
from temporalio.service import RPCError

from perdure.client import Perdure
from perdure.models.errors import PerdureError
from perdure.plugin import perdure_plugin


async def main(repository: str, request: str) -> int:
    """Submit the request, or attach to a delivery of it that runs, and wait for its end. Print the delivery's id and,
    at the end, its result; return 0 when what was asked for exists, else 1, 2 for a request that is wrong, and 3 where
    Temporal cannot be reached. Connects as TEMPORAL_* says (default 127.0.0.1:7233)."""
    config = ClientConfig.load_client_connect_config()
    address = config.setdefault("target_host", "127.0.0.1:7233")
    try:
        client = await Client.connect(**config, plugins=[perdure_plugin()])
        submitted = await Perdure(client).submit({"repository": repository, "request": request})
        print(f"{submitted.delivery.id} {'goes on' if submitted.attached else 'started'}", flush=True)
        result = await submitted.delivery.result()
    except (RuntimeError, RPCError) as error:  # the SDK's errors of a connection that cannot be made, or ended
        print(f"error: Temporal cannot be reached at {address}: {error}", file=sys.stderr)
        return 3
    except PerdureError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(result.model_dump_json(indent=2), flush=True)
    return 0 if result.status in ("delivered", "draft", "completed") else 1


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    code = asyncio.run(main(*sys.argv[1:]))
    os._exit(code)  # the Temporal SDK was seen to crash in an ordinary exit (sdk-python issue 300)
