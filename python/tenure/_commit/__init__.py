"""Room 4: the commit log and what stands around it: outbox, crash marker, recovery."""
