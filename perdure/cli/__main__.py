"""`python -m perdure.cli`: the same as `perdure`."""

from perdure.cli.app import main

main()
