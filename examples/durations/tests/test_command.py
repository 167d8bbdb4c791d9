import subprocess
import sys
import unittest


def run(*arguments):
    return subprocess.run([sys.executable, "-m", "durations", *arguments], capture_output=True, text=True)


class CommandTest(unittest.TestCase):
    def test_writes_what_it_read(self):
        self.assertEqual(run("90m").stdout, "1h30m = 5400 s\n")

    def test_says_what_it_cannot_read(self):
        done = run("soon")
        self.assertEqual((done.returncode, done.stderr), (1, "durations: not a duration: 'soon'\n"))

    def test_says_how_it_is_used(self):
        self.assertEqual(run().returncode, 2)
