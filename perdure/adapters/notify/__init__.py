"""Outgoing webhooks about a delivery. Only here are their addresses and secrets known."""
