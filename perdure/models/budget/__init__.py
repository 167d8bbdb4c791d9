"""Money: what model replies cost, and budgets that many deliveries share."""
