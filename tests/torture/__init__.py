"""
kill -9, stops and fail points against the lease, with real processes, and a checker of what they wrote down.

    python -m tests.torture --seconds 30 --seed 7 --workers 6
"""
