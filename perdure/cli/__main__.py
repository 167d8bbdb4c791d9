"""Entry point of `python -m perdure.cli`, which does the same as `perdure`."""

from perdure.cli.app import main

main()
