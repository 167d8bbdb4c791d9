import unittest
from datetime import timedelta

from durations import DurationError, parse_duration


class ParseTest(unittest.TestCase):
    def test_seconds(self):
        self.assertEqual(parse_duration("90s"), timedelta(seconds=90))

    def test_minutes(self):
        self.assertEqual(parse_duration("5m"), timedelta(minutes=5))

    def test_hours(self):
        self.assertEqual(parse_duration("2h"), timedelta(hours=2))

    def test_days(self):
        self.assertEqual(parse_duration("3d"), timedelta(days=3))

    def test_weeks(self):
        self.assertEqual(parse_duration("2w"), timedelta(weeks=2))

    def test_fractions(self):
        self.assertEqual(parse_duration("1.5h"), timedelta(minutes=90))

    def test_fractions_of_a_second(self):
        self.assertEqual(parse_duration("0.25s"), timedelta(milliseconds=250))

    def test_words(self):
        self.assertEqual(parse_duration("10 minutes"), timedelta(minutes=10))

    def test_singular_words(self):
        self.assertEqual(parse_duration("1 hour"), timedelta(hours=1))

    def test_abbreviations(self):
        self.assertEqual(parse_duration("15min"), timedelta(minutes=15))

    def test_capitals(self):
        self.assertEqual(parse_duration("2 Days"), timedelta(days=2))

    def test_space_around(self):
        self.assertEqual(parse_duration("  7s\n"), timedelta(seconds=7))

    def test_sign(self):
        self.assertEqual(parse_duration("-5m"), timedelta(minutes=-5))
        self.assertEqual(parse_duration("+5m"), timedelta(minutes=5))

    def test_zero(self):
        self.assertEqual(parse_duration("0"), timedelta(0))

    def test_zero_with_a_unit(self):
        self.assertEqual(parse_duration("0m"), timedelta(0))

    def test_refuses_nothing(self):
        self.assertRaises(DurationError, parse_duration, "")

    def test_refuses_space(self):
        self.assertRaises(DurationError, parse_duration, "   ")

    def test_refuses_a_number_without_a_unit(self):
        self.assertRaises(DurationError, parse_duration, "90")

    def test_refuses_a_unit_without_a_number(self):
        self.assertRaises(DurationError, parse_duration, "h")

    def test_refuses_two_signs(self):
        self.assertRaises(DurationError, parse_duration, "--5m")

    def test_refuses_words(self):
        self.assertRaises(DurationError, parse_duration, "soon")

    def test_refuses_a_point_without_digits(self):
        self.assertRaises(DurationError, parse_duration, "1.h")

    def test_names_the_unit_it_does_not_know(self):
        with self.assertRaisesRegex(DurationError, "unknown unit 'parsecs'"):
            parse_duration("12 parsecs")

    def test_refuses_what_no_timedelta_can_hold(self):
        with self.assertRaisesRegex(DurationError, "too long"):
            parse_duration("99999999999999w")

    def test_an_error_is_a_value_error(self):
        self.assertTrue(issubclass(DurationError, ValueError))
