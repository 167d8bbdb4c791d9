#!/bin/sh
# Healthy means: a command can run in the sandbox. Runs one, with the product's own flags; says why not, and what to do.
#
# Not whether Temporal answers: a worker waits for it, and restarting the worker would not bring it back.
set -eu

exec python -c '
import sys

from perdure.adapters.sandbox.grades import probe

error = probe().error
sys.exit(f"error: {error}" if error else 0)
'
