"""PostgreSQL's driver, with an end to its patience."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from tenure._store._sql_address import REQUEST_S


class ImpatientConnection(psycopg.Connection[Any]):
    """
    A connection that gives up on a server that does not answer.

    Neither the server's own timeouts nor TCP's can do that: behind a pooler the first cannot be set, and the second are
    content with a machine that acknowledges and never answers.
    """

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        try:
            return super().wait(gen, interval, REQUEST_S if timeout is None else timeout)
        except psycopg.OperationalError:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                # The answer may still come, and would be taken for that of the next request.
                self.pgconn.finish()
            raise
