"""
How S3, Google Cloud Storage and Azure say the same few things over HTTP, as far as `obstore` asks for them.

Sources: Amazon S3 API reference (PutObject, ListObjectsV2, multipart upload); Cloud Storage XML API reference; Azure
"Blob service REST API" (Put Blob, Put Block List, List Blobs, Blob Batch).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

Dialect = Literal["s3", "gs", "az"]
Operation = Literal["create", "replace", "put", "read", "head", "list", "delete", "start", "part", "complete", "abort"]

BUCKET = "bucket"
ACCOUNT = "account"
_DATE = "Thu, 01 Jan 2026 00:00:00 GMT"


@dataclass(frozen=True)
class Request:
    """One request, whatever its dialect. *version*: the one that a `replace` asks for, or that a read already has."""

    operation: Operation
    key: str
    data: bytes = b""
    version: str = ""
    upload: str = ""
    part: str = ""
    parts: tuple[str, ...] = ()
    after: str = ""
    token: str = ""
    batch: str = ""
    # Azure starts a list at a key, the others behind it.
    inclusive: bool = False


class Object(NamedTuple):
    data: bytes
    tag: str
    generation: int


@dataclass
class Answer:
    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    def encode(self, *, with_body: bool = True) -> bytes:
        # One write: headers and body in two would meet Nagle's algorithm and cost 40 ms each.
        lines = [f"HTTP/1.1 {self.status} X", f"content-length: {len(self.body)}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + (self.body if with_body else b"")


def understood(dialect: Dialect, method: str, target: str, headers: dict[str, str], body: bytes) -> Request:
    """What was asked for. Raises KeyError for what these servers are never asked here."""
    parts = urlsplit(target)
    query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    above = f"/{ACCOUNT}/{BUCKET}" if dialect == "az" else f"/{BUCKET}"
    key = unquote(parts.path.removeprefix(above)).lstrip("/")
    if dialect == "az":
        return _azure(method, key, query, headers, body)
    return _amazon(dialect, method, key, query, headers=headers, body=body)


def _amazon(
    dialect: Dialect, method: str, key: str, query: dict[str, str], *, headers: dict[str, str], body: bytes
) -> Request:
    if method == "GET" and not key:
        after = query.get("start-after", "")
        return Request("list", query.get("prefix", ""), after=after, token=query.get("continuation-token", ""))
    if method == "POST" and "uploads" in query:
        return Request("start", key)
    if "uploadId" in query:
        upload = query["uploadId"]
        if method == "PUT":
            return Request("part", key, data=body, upload=upload, part=query["partNumber"].zfill(6))
        if method == "POST":
            numbers = re.findall(r"<PartNumber>(\d+)</PartNumber>", body.decode())
            return Request("complete", key, upload=upload, parts=tuple(number.zfill(6) for number in numbers))
        return Request("abort", key, upload=upload)
    if method == "PUT" and dialect == "gs":
        generation = headers.get("x-goog-if-generation-match")
        return _put(key, body, absent=generation == "0", version=generation)
    if method == "PUT":
        return _put(key, body, absent=headers.get("if-none-match") == "*", version=headers.get("if-match"))
    return _plain(method, key, headers)


def _azure(method: str, key: str, query: dict[str, str], headers: dict[str, str], body: bytes) -> Request:
    doing = query.get("comp")
    if doing == "list":
        after, token = query.get("startFrom", ""), query.get("marker", "")
        return Request("list", query.get("prefix", ""), after=after, token=token, inclusive=True)
    if doing == "batch":
        match = re.search(rf"DELETE /{ACCOUNT}/{BUCKET}/(\S+) HTTP", body.decode())
        assert match is not None
        return Request("delete", unquote(match[1]), batch=headers["content-type"].partition("boundary=")[2])
    if doing == "block":
        return Request("part", key, data=body, upload=key, part=query["blockid"])
    if doing == "blocklist":
        return Request("complete", key, upload=key, parts=tuple(re.findall(r">([^<>\s]+)</", body.decode())))
    if method == "PUT":
        return _put(key, body, absent=headers.get("if-none-match") == "*", version=headers.get("if-match"))
    return _plain(method, key, headers)


def _put(key: str, body: bytes, *, absent: bool, version: str | None) -> Request:
    if absent:
        return Request("create", key, data=body)
    return Request("put", key, data=body) if version is None else Request("replace", key, data=body, version=version)


def _plain(method: str, key: str, headers: dict[str, str]) -> Request:
    operations: dict[str, Operation] = {"GET": "read", "HEAD": "head", "DELETE": "delete"}
    return Request(operations[method], key, version=headers.get("if-none-match", ""))


def version_of(dialect: Dialect, found: Object) -> str:
    """What a condition of this dialect names."""
    return str(found.generation) if dialect == "gs" else found.tag


def stored(dialect: Dialect, found: Object, request: Request) -> Answer:
    """The answer to a read, a head or a put."""
    headers = {"etag": found.tag, "last-modified": _DATE}
    if dialect == "gs":
        headers |= {"x-goog-generation": str(found.generation)}
    if request.operation in ("read", "head"):
        return Answer(200, found.data, headers)
    if request.operation == "complete" and dialect != "az":
        body = f"<CompleteMultipartUploadResult><ETag>{escape(found.tag)}</ETag></CompleteMultipartUploadResult>"
        return Answer(200, body.encode(), headers)
    return Answer(201 if dialect == "az" else 200, b"", headers)


def started(upload: str) -> Answer:
    body = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
    return Answer(200, body.encode())


def deleted(dialect: Dialect, request: Request, found: bool) -> Answer:
    if dialect == "az":
        status = "202 Accepted" if found else "404 Not Found"
        body = (
            f"--{request.batch}\r\nContent-Type: application/http\r\nContent-ID: 0\r\n\r\n"
            f"HTTP/1.1 {status}\r\nx-ms-request-id: 1\r\n\r\n\r\n--{request.batch}--\r\n"
        )
        return Answer(202, body.encode(), {"content-type": f"multipart/mixed; boundary={request.batch}"})
    # S3 says the same whether it was there or not; the other one does not.
    return Answer(204) if found or dialect == "s3" else refusal(dialect, 404, "NoSuchKey")


def listed(dialect: Dialect, found: list[tuple[str, Object]], token: str) -> Answer:
    if dialect == "az":
        blobs = "".join(
            f"<Blob><Name>{escape(key)}</Name><Properties><Last-Modified>{_DATE}</Last-Modified>"
            f"<Content-Length>{len(one.data)}</Content-Length><Content-Type>x</Content-Type>"
            f"<Etag>{escape(one.tag)}</Etag></Properties></Blob>"
            for key, one in found
        )
        marker = f"<NextMarker>{escape(token)}</NextMarker>" if token else "<NextMarker />"
        return Answer(200, f"<EnumerationResults><Blobs>{blobs}</Blobs>{marker}</EnumerationResults>".encode())
    contents = "".join(
        f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
        f"<ETag>{escape(one.tag)}</ETag><Size>{len(one.data)}</Size></Contents>"
        for key, one in found
    )
    more = f"<NextContinuationToken>{escape(token)}</NextContinuationToken>" if token else ""
    cut = "true" if token else "false"
    return Answer(
        200, f"<ListBucketResult><IsTruncated>{cut}</IsTruncated>{contents}{more}</ListBucketResult>".encode()
    )


def refusal(dialect: Dialect, status: int, code: str, headers: dict[str, str] | None = None) -> Answer:
    """An error as these services word it."""
    body = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>said by the test</Message></Error>'
    named = {"x-ms-error-code": code} if dialect == "az" else {}
    return Answer(status, body.encode(), {**named, **(headers or {})})


def url_of(dialect: Dialect, endpoint: str, prefix: str) -> str:
    """The store in the bucket of the server at *endpoint*, for `open_store`. Credentials come from the environment."""
    where = quote(endpoint, safe="")
    if dialect == "s3":
        options = f"endpoint={where}&region=us-east-1"
    elif dialect == "gs":
        options = f"base_url={where}"
    else:
        options = f"account_name={ACCOUNT}&endpoint={where}%2F{ACCOUNT}&skip_signature=true"
    return f"{dialect}://{BUCKET}/{prefix}?{options}&allow_http=true"
