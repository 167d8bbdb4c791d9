"""The attack table: what hostile repositories, agents, strangers, neighbours and peers try, and what becomes of it."""
