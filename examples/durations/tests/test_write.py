import unittest
from datetime import timedelta

from durations import format_duration


class WriteTest(unittest.TestCase):
    def test_one_unit(self):
        self.assertEqual(format_duration(timedelta(hours=2)), "2h")

    def test_two_units(self):
        self.assertEqual(format_duration(timedelta(minutes=90)), "1h30m")

    def test_all_units(self):
        self.assertEqual(format_duration(timedelta(days=1, hours=2, minutes=3, seconds=4)), "1d2h3m4s")

    def test_units_between_are_left_out(self):
        self.assertEqual(format_duration(timedelta(days=1, seconds=4)), "1d4s")

    def test_weeks_are_days(self):
        self.assertEqual(format_duration(timedelta(weeks=2)), "14d")

    def test_negative(self):
        self.assertEqual(format_duration(timedelta(days=-2, hours=-6)), "-2d6h")

    def test_zero(self):
        self.assertEqual(format_duration(timedelta(0)), "0s")

    def test_parts_of_a_second_are_rounded(self):
        self.assertEqual(format_duration(timedelta(seconds=59, milliseconds=700)), "1m")
