"""
One writer at a time, and proof when the last one is gone.

The map of the house; each room imports only from rooms below it.

    _cli          the command                                     tenure run / status / whoami / judge
    _lease        who may write now                               WriterLease, Hold
    _judgement    one rule: lifeline, then identity, else unknown
    _store        five operations on a directory or in memory     open_store, tenure.stores
    _identity     who a process is                                ProcessIdentity, judge, Watch
    _core         the Rust core                                   its manual is _core.pyi
"""
