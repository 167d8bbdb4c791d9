"""A target repository as a delivery needs it: its configuration, the toolchain detected in it, its setup, ports, notes
and issue."""
