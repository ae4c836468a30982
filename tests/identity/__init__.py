"""Who a process is and whether it still lives: the decision table, the record, watches, forks and host ids."""
