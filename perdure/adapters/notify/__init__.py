"""Who is told what of a delivery: outgoing webhooks. Only here are their addresses and secrets known."""
