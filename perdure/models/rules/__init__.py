"""Pure decisions over the state of a delivery, a backlog or the Treasury: they read no clock, file or network."""
