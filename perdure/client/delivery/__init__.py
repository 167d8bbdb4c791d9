"""One delivery: reading it, deciding what it waits for, its turns, and going back to one of them."""
