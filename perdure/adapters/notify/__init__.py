"""Outgoing webhooks about a delivery. Their addresses and secrets are known only here."""
