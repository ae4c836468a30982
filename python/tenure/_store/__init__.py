"""
Where records live: one protocol, and a module (or a few) for each store that keeps it.
"""
