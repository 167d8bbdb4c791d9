"""The wires that the rehearsal speaks, one module each; each request is played as one of the Messages API."""
