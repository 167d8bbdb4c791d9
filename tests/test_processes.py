"""A suite in the background of a shell, where signals of the terminal are ignored, tests the same as in front."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

IN_THE_BACKGROUND = """
import signal, subprocess, sys
ignored = [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT]
for number in ignored:
    signal.signal(number, signal.SIG_IGN)
from tests.processes import as_from_a_terminal
as_from_a_terminal()
for number in ignored:
    signal.raise_signal(number)
heard = "import signal; print([signal.getsignal(n) is not signal.SIG_IGN for n in (1, 2, 3)])"
print(subprocess.run([sys.executable, "-c", heard], capture_output=True, text=True).stdout)
"""


def test_what_is_started_hears_the_terminal_though_the_suite_was_started_deaf_and_stays_so() -> None:
    command = [sys.executable, "-c", IN_THE_BACKGROUND]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.split()) == (0, ["[True,", "True,", "True]"]), done
