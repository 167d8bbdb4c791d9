"""The report of a delivery: its facts, and these as text and as one HTML page."""
