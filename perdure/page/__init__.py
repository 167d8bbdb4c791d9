"""The web page: what runs, what waits for a person, and the decisions, in a browser.

Read from Temporal and from the hosts of deliveries; `perdure page` and `perdure up` run it.
"""
