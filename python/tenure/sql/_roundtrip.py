"""
Several statements to PostgreSQL in one round trip, and BEGIN with them, over psycopg's connection.

So that a fenced transaction waits for the server no oftener than one without: that is most of what a fence costs. It speaks
libpq's pipeline mode itself: psycopg's own pipeline waits once too, but costs more than the round trip that it saves.
Source: PostgreSQL's manual, "Pipeline Mode".
"""

from __future__ import annotations

import contextlib
import itertools
import select
import sys
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from tenure.sql._statements import Outcome, Statement, render

# What a server answers that has forgotten a prepared statement, or whose tables have changed since.
_FORGOTTEN = ("26000", "0A000")
# What this process has prepared, by the connection: the statement's text and its name.
_prepared: WeakKeyDictionary[Any, dict[str, bytes]] = WeakKeyDictionary()
# Never twice in a process: whoever prepared something that we do not know of has another name for it.
_numbers = itertools.count(1)


def together(raw: Any, statements: Sequence[Statement]) -> Outcome:
    """
    Run *statements* on psycopg's connection *raw*, in its transaction or in a new one; what the last one says.

    Raises:
        psycopg.Error: of the first that failed.
    """
    from psycopg import Error, Pipeline, pq  # noqa: PLC0415  only where psycopg is used

    # libpq before 14 has no pipelines, and Windows no poll.
    if not Pipeline.is_supported() or sys.platform == "win32" or raw.pgconn.pipeline_status != pq.PipelineStatus.OFF:
        return one_by_one(raw, statements)
    begins = raw.pgconn.transaction_status == pq.TransactionStatus.IDLE
    try:
        return _pipelined(raw, statements, begins=begins)
    except Error as error:
        if not begins or error.sqlstate not in _FORGOTTEN or not _prepared.pop(raw, None):
            raise
    # A pooler or a DEALLOCATE in between: nothing has been done yet.
    raw.rollback()
    return _pipelined(raw, statements, begins=True)


def one_by_one(raw: Any, statements: Sequence[Statement]) -> Outcome:
    """The same with a round trip for each."""
    cursor = raw.cursor()
    for statement in statements:
        sql, params = render(statement, "pyformat")
        cursor.execute(sql, params or None)
    return Outcome(cursor.fetchall() if cursor.description else (), cursor.rowcount)


def _pipelined(raw: Any, statements: Sequence[Statement], *, begins: bool) -> Outcome:
    pgconn = raw.pgconn
    pgconn.enter_pipeline_mode()
    try:
        sent: list[_Sent] = []
        if begins:
            pgconn.send_query_params(_begin(raw), None)
            sent.append(None)
        for statement in statements:
            # In a transaction that is not ours a forgotten one could not be made good.
            sent += _send(raw, statement, prepares=begins and raw.prepare_threshold is not None)
        pgconn.pipeline_sync()
        results = _results(pgconn)
        pgconn.exit_pipeline_mode()
    except BaseException:
        # Ctrl-C, or the server is gone: whatever still comes belongs to nobody.
        with contextlib.suppress(Exception):
            raw.close()
        raise
    return _outcome(raw, sent, results)


_Sent = tuple[str, bytes] | None
"""What was prepared under which name; None for all that is no preparation."""


def _send(raw: Any, statement: Statement, *, prepares: bool) -> list[_Sent]:
    sql, values = render(statement, "numeric_dollar")
    params = [None if value is None else str(value).encode() for value in values]
    if not prepares or not params:
        raw.pgconn.send_query_params(sql.encode(), params)
        return [None]
    name = _prepared.get(raw, {}).get(sql)
    if name is not None:
        raw.pgconn.send_query_prepared(name, params)
        return [None]
    name = f"tenure_{next(_numbers)}".encode()
    raw.pgconn.send_prepare(name, sql.encode())
    raw.pgconn.send_query_prepared(name, params)
    return [(sql, name), None]


def _begin(raw: Any) -> bytes:
    """BEGIN, as psycopg would send it."""
    words = ["BEGIN"]
    if raw.isolation_level is not None:
        words.append(f"ISOLATION LEVEL {raw.isolation_level.name.replace('_', ' ')}")
    if raw.read_only is not None:
        words.append("READ ONLY" if raw.read_only else "READ WRITE")
    if raw.deferrable is not None:
        words.append("DEFERRABLE" if raw.deferrable else "NOT DEFERRABLE")
    return " ".join(words).encode()


def _results(pgconn: Any) -> list[Any]:
    """All that is answered up to the Sync. Waits in `poll`, where Ctrl-C comes through."""
    from psycopg import OperationalError, pq  # noqa: PLC0415  see above

    if sys.platform == "win32":
        raise AssertionError("without poll, statements are sent one by one")
    results: list[Any] = []
    poll = select.poll()
    poll.register(pgconn.socket, select.POLLIN | select.POLLOUT)
    while pgconn.flush():
        poll.poll()
        pgconn.consume_input()
    poll.modify(pgconn.socket, select.POLLIN)
    while True:
        while pgconn.is_busy():
            poll.poll()
            pgconn.consume_input()
        result = pgconn.get_result()
        if result is None:
            # Between two results; or for ever, when there is nobody any more to send one.
            if pgconn.status != pq.ConnStatus.OK:
                raise OperationalError(pgconn.get_error_message())
            continue
        if result.status == pq.ExecStatus.PIPELINE_SYNC:
            return results
        results.append(result)


def _outcome(raw: Any, sent: Sequence[_Sent], results: Sequence[Any]) -> Outcome:
    from psycopg import pq  # noqa: PLC0415  see above
    from psycopg.errors import error_from_result  # noqa: PLC0415  see above

    # What follows a failure is not answered, and what was prepared before it stays.
    for preparation, result in zip(sent, results, strict=False):
        if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
            raise error_from_result(result, raw.info.encoding)
        if preparation is not None:
            sql, name = preparation
            _prepared.setdefault(raw, {})[sql] = name
    last = results[-1]
    rows = [tuple(_value(last, row, column) for column in range(last.nfields)) for row in range(last.ntuples)]
    return Outcome(rows, last.command_tuples if last.command_tuples is not None else -1)


def _value(result: Any, row: int, column: int) -> object:
    value = result.get_value(row, column)
    if value is None:
        return None
    text = value.decode()
    # Source: pg_type.dat; bool, and the integers.
    kind = result.ftype(column)
    return text == "t" if kind == 16 else int(text) if kind in (20, 21, 23) else text
