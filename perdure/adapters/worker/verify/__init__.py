"""Facts for `perdure verify`, read again from vault, ledger, remote and forge; nothing here writes or judges."""
