"""Submit one request and wait for its pull request: copy this into your own program.

python starter.py https://github.com/me/durations "Make parse_duration accept '1h30m'"
"""

from __future__ import annotations

import asyncio
import os
import sys

from temporalio.client import Client
from temporalio.envconfig import ClientConfig

from perdure.client import Perdure
from perdure.plugin import perdure_plugin


async def main(repository: str, request: str) -> int:
    """Submit the request, or attach to a delivery of it that runs, and wait for its end. Print the delivery's id and,
    at the end, its result; return 0 when what was asked for exists, else 1. Connects as TEMPORAL_* says (default
    127.0.0.1:7233)."""
    config = ClientConfig.load_client_connect_config()
    config.setdefault("target_host", "127.0.0.1:7233")
    client = await Client.connect(**config, plugins=[perdure_plugin()])
    submitted = await Perdure(client).submit({"repository": repository, "request": request})
    print(f"{submitted.delivery.id} {'goes on' if submitted.attached else 'started'}")
    result = await submitted.delivery.result()
    print(result.model_dump_json(indent=2), flush=True)
    return 0 if result.status in ("delivered", "draft", "completed") else 1


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    code = asyncio.run(main(*sys.argv[1:]))
    os._exit(code)  # the Temporal SDK was seen to crash in an ordinary exit (sdk-python issue 300)
