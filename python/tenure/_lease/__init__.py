"""Room 3: the writer lease. A claim takes a fence, a beat keeps it, a lifeline ends with whoever carries it."""
