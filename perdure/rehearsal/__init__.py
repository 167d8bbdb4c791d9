"""A deterministic twin of the model APIs: plays a screenplay over real HTTP."""
