"""
What an object store's answer means: the request was applied, refused, or nobody can tell. One table.

`obstore` says it in sentences; the status and the service's own code are read from them. The sentence itself goes no
further than this module, since it holds the whole URL, and that holds the signature where Azure is used.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from tenure._store._object_url import Location, without_secrets
from tenure.errors import StoreCannotLockError, StoreError, StoreUnavailableError

# refused: the condition did not hold, or another request was under way. unsent: nothing has left this machine.
Kind = Literal["refused", "absent", "unsent", "unclear", "impossible"]

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_CONNECT = re.compile(r"kind: Connect\b|ConnectError|dns error")
_NO_CREDENTIALS = re.compile(
    r"169\.254\.169\.254|169\.254\.170\.2|fd00:ec2::254|metadata\.google\.internal|token request"
)


class Answer(NamedTuple):
    """An answer that is not a success. *status* is 0 where there was none."""

    kind: Kind
    status: int
    code: str
    cause: Exception

    @property
    def is_busy(self) -> bool:
        """Whether the store asks for fewer requests."""
        return self.status in (429, 503)


def understood(error: Exception) -> Answer:
    """What obstore's *error* means for a request that has one effect or none."""
    text = str(error)
    status = int(match[1]) if (match := _STATUS.search(text)) else 0
    code = match[1] if (match := _CODE.search(text)) else ""
    if not status and "BareRedirect" in text:
        status, code = 301, "PermanentRedirect"
    if _NO_CREDENTIALS.search(text):
        # Whatever the machine's own service for credentials has answered, the store was not asked.
        status, code = 0, "NoCredentials"
    return Answer(_kind(type(error).__name__, status, code, text), status, code, _harmless(error, status, code))


def _kind(name: str, status: int, code: str, text: str) -> Kind:
    if code == "NoCredentials":
        return "unsent"
    if code in _MEANINGS:
        return "impossible"
    if name in ("AlreadyExistsError", "PreconditionError", "NotModifiedError"):
        return "refused"
    if name == "FileNotFoundError":
        return "absent"
    # S3 says 400 where others say 408.
    if status in (0, 408, 429) or status >= 500 or code == "RequestTimeout":
        if status == 501:
            return "impossible"
        return "unsent" if not status and _CONNECT.search(text) else "unclear"
    return "impossible"


def _harmless(error: Exception, status: int, code: str) -> Exception:
    """*error* with nothing in its words that must not be seen."""
    first = without_secrets(str(error).split("\n", 1)[0])
    words = first.split(" - ")[-1] if not status else f"the service answered {status} {code}".rstrip()
    return type(error)(words)


class _Meaning(NamedTuple):
    error: type[StoreError]
    words: str
    hint: str


_BUCKET = _Meaning(
    StoreError, "there is no such bucket", "make it, or check its name, the account and the endpoint in the URL"
)
_EXPIRED = _Meaning(StoreError, "the credentials have expired", "renew the session token, the SAS or the login")
_REJECTED = _Meaning(
    StoreError,
    "the store does not accept these credentials",
    "check the key in the environment, and that it belongs to this account and endpoint",
)
_REGION = _Meaning(
    StoreError, "the bucket is in another region", "set its region: `?region=…` in the URL, or AWS_REGION"
)
_SKEWED = _Meaning(
    StoreError,
    "this machine's clock is too far from the store's for its signatures to be accepted",
    "set the clock (NTP); the lease itself does not read it",
)
_DENIED = _Meaning(StoreError, "these credentials may not do that", "grant listing, reading, writing and deleting")
_CONDITIONS = _Meaning(
    StoreCannotLockError, "the store does not know conditional requests", "use a store that has If-None-Match"
)
_NO_KEYS = _Meaning(
    StoreError, "no credentials were found", "set AWS_…, GOOGLE_… or AZURE_… variables, or `?skip_signature=true`"
)
_MEANINGS: dict[str, _Meaning] = {
    "NoSuchBucket": _BUCKET,
    "ContainerNotFound": _BUCKET,
    "ContainerBeingDeleted": _BUCKET,
    "InvalidBucketName": _BUCKET,
    "ExpiredToken": _EXPIRED,
    "TokenRefreshRequired": _EXPIRED,
    "InvalidToken": _REJECTED,
    "InvalidAccessKeyId": _REJECTED,
    "SignatureDoesNotMatch": _REJECTED,
    "AuthenticationFailed": _REJECTED,
    "InvalidAuthenticationInfo": _REJECTED,
    "AuthorizationHeaderMalformed": _REGION,
    "IllegalLocationConstraintException": _REGION,
    "PermanentRedirect": _REGION,
    "TemporaryRedirect": _REGION,
    "RequestTimeTooSkewed": _SKEWED,
    "AccessDenied": _DENIED,
    "AllAccessDisabled": _DENIED,
    "AccountIsDisabled": _DENIED,
    "AuthorizationFailure": _DENIED,
    "AuthorizationPermissionMismatch": _DENIED,
    "InsufficientAccountPermissions": _DENIED,
    "NotImplemented": _CONDITIONS,
    "NoCredentials": _NO_KEYS,
}
_BY_STATUS = {301: _REGION, 307: _REGION, 401: _REJECTED, 403: _DENIED, 404: _BUCKET, 501: _CONDITIONS}
_PASSING = _Meaning(StoreUnavailableError, "no clear answer in time", "try again; see the store's status page")
_BUSY = _Meaning(
    StoreUnavailableError, "the store asks for fewer requests", "try again later; a longer ttl beats less often"
)
_UNREACHED = _Meaning(
    StoreUnavailableError, "the store cannot be reached", "check the endpoint, the network and the proxy"
)
_UNHEARD_OF = _Meaning(StoreError, "the store refuses", "see the cause for what it answered")


def store_error(answer: Answer, where: Location, key: str, doing: str, *, applied: bool | None) -> StoreError:
    """*answer*, the last one while *doing* something with *key*, as the error that a caller can act on."""
    if answer.kind == "unsent":
        meaning = _MEANINGS.get(answer.code, _UNREACHED)
    elif answer.kind in ("unclear", "refused"):
        meaning = _BUSY if answer.is_busy else _PASSING
    else:
        meaning = _MEANINGS.get(answer.code) or _BY_STATUS.get(answer.status, _UNHEARD_OF)
    said = " ".join(filter(None, (str(answer.status or ""), answer.code))) or "nothing"
    error = meaning.error(
        f"cannot {doing}: {meaning.words}. store=`{where.name}`, key=`{key}`, answer=`{said}`",
        hint=meaning.hint,
        applied=applied,
        filename=f"{where.name}/{key}",
    )
    error.__cause__ = answer.cause
    return error
