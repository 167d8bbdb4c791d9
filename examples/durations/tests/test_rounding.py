import unittest
from datetime import timedelta

from durations import round_duration

MINUTE = timedelta(minutes=1)


class RoundingTest(unittest.TestCase):
    def test_down(self):
        self.assertEqual(round_duration(timedelta(seconds=89), MINUTE), MINUTE)

    def test_up(self):
        self.assertEqual(round_duration(timedelta(seconds=91), MINUTE), 2 * MINUTE)

    def test_halves_go_away_from_zero(self):
        self.assertEqual(round_duration(timedelta(seconds=90), MINUTE), 2 * MINUTE)

    def test_negative_halves_too(self):
        self.assertEqual(round_duration(timedelta(seconds=-90), MINUTE), -2 * MINUTE)

    def test_refuses_to_round_to_zero(self):
        self.assertRaises(ValueError, round_duration, MINUTE, timedelta(0))
