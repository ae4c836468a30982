"""
From a URL to a client of the object store it names.

    s3://bucket/prefix?region=eu-central-1        Amazon S3, and what speaks like it (endpoint=…)
    gs://bucket/prefix                            Google Cloud Storage
    az://container/prefix?account_name=…          Azure Blob Storage

The query has the options that `obstore` takes, under its names. Credentials come from where they always come from: the
environment, a profile, the machine's role.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from tenure.errors import StoreError

Scheme = Literal["s3", "gs", "az"]

DEFAULT_ATTEMPT_S = 5.0
# Of no use in a URL, which is logged, shown by `tenure status` and written into the history of a shell.
_SECRETS = re.compile(
    r"secret|token|password|(?:account|access|sas|shared|encryption|service_account)_key$|sse_customer"
)
# Whatever else an environment holds: these are the variables that obstore takes secrets from.
_SECRET_VARIABLES = re.compile(r"^(?:AWS|AZURE|GOOGLE)_.*(?:SECRET|TOKEN|KEY|PASSWORD|SAS)")
_CLIENT_OPTIONS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "http1_only",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_excludes",
        "proxy_url",
        "user_agent",
    }
)
_SEGMENT = re.compile(r"[A-Za-z0-9!_.*'()=+@-]+")


@dataclass(frozen=True)
class Location:
    """Where a store is, and how its client is made."""

    scheme: Scheme
    bucket: str
    prefix: str
    options: Mapping[str, str]

    @staticmethod
    def parse(url: str) -> Location:
        """
        The place that *url* names.

        Raises:
            ValueError: says which part is wrong, and never repeats a secret.
        """
        parts = urlsplit(url)
        scheme = parts.scheme.lower()
        if scheme not in ("s3", "gs", "az"):
            raise ValueError(f"not an object store: {scheme!r}")
        kind: Scheme = "s3" if scheme == "s3" else "gs" if scheme == "gs" else "az"
        if "@" in parts.netloc:
            raise ValueError(f"the URL of a bucket has no user and no password. scheme={scheme}; use the environment")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}", parts.netloc):
            raise ValueError(f"not the name of a bucket: {parts.netloc!r}. Write {scheme}://bucket/prefix")
        if parts.fragment:
            raise ValueError("the URL of a bucket has no fragment. Write %23 for '#'")
        prefix = parts.path.strip("/")
        for segment in filter(None, prefix.split("/")):
            if not _SEGMENT.fullmatch(segment) or segment in (".", ".."):
                raise ValueError(f"not a prefix: {prefix!r}. Letters, digits and !_.*'()=+@- are, joined by '/'")
        return Location(kind, parts.netloc, prefix, _options(parts.query))

    @property
    def name(self) -> str:
        """For messages: without the options."""
        return f"{self.scheme}://{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def url(self) -> str:
        """Opens this very store again."""
        query = urlencode(sorted(self.options.items()), quote_via=quote, safe=":/")
        return f"{self.scheme}://{self.bucket}/{self.prefix}" + (f"?{query}" if query else "")

    @property
    def attempt_s(self) -> float:
        """Seconds for one request."""
        return float(self.options.get("timeout", DEFAULT_ATTEMPT_S))

    @property
    def endpoint(self) -> str:
        """The server in front of the bucket, or "" for the service's own."""
        for option, *variables in _ENDPOINTS[self.scheme]:
            found = self.options.get(option) or next(filter(None, map(os.environ.get, variables)), "")
            if found:
                return found
        return ""

    def client(self, timeout_s: float, *, silence_s: float | None = None, retries: int = 0) -> Any:
        """
        A client that gives each request *timeout_s* seconds.

        Args:
            timeout_s: from its beginning to the last byte of the answer.
            silence_s: ... and no longer than this without a byte.
            retries: what the client may do by itself: nothing, where a request has a condition. It would send it again and
                then report our own success as somebody else's.

        Raises:
            StoreError: obstore is not installed, or does not take the options.
        """
        try:
            stores = importlib.import_module("obstore.store")
        except ImportError as error:
            raise StoreError(
                f"this installation has no client for object stores. store=`{self.name}`",
                hint="install the extra: `pip install 'tenure[objects]'`",
            ) from error
        http: dict[str, Any] = {"timeout": timedelta(seconds=timeout_s)}
        if silence_s is not None:
            http["read_timeout"] = timedelta(seconds=silence_s)
        config: dict[str, Any] = {}
        for name, value in self.options.items():
            if name in _CLIENT_OPTIONS:
                http[name] = value
            elif name not in ("timeout", "profile"):
                config[name] = value
        more: dict[str, Any] = {}
        if self.scheme == "s3":
            # One by one is what every server understands, and nobody here deletes many.
            config.setdefault("disable_bulk_delete", "true")
            provider = self._profile()
            if provider is not None:
                more["credential_provider"] = provider
        made, bucket = _MADE_BY[self.scheme]
        problem = ""
        try:
            return getattr(stores, made)(
                **{bucket: self.bucket},
                prefix=self.prefix or None,
                config=config,
                client_options=http,
                retry_config={"max_retries": retries},
                **more,
            )
        except Exception as error:  # noqa: BLE001  whatever a client says of its configuration
            problem = without_secrets(str(error).split("\n", 1)[0])
        # Outside the handler: the original words, which may hold a key, must not travel as context either.
        raise StoreError(
            f"the client does not take this configuration: {problem}. store=`{self.name}`",
            hint="check the options in the URL, and AWS_…, GOOGLE_… or AZURE_… in the environment",
        )

    def _profile(self) -> Callable[[], Any] | None:
        """Of AWS's configuration files, which only its own library reads."""
        environment = os.environ
        profile = self.options.get("profile")
        if profile is None and "AWS_ACCESS_KEY_ID" not in environment:
            profile = environment.get("AWS_PROFILE")
        if profile is None:
            return None
        try:
            boto3 = importlib.import_module("boto3")
            auth = importlib.import_module("obstore.auth.boto3")
        except ImportError as error:
            raise StoreError(
                f"profiles of AWS are read by boto3, which is not installed. profile=`{profile}`",
                hint="`pip install boto3`, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            ) from error
        provider: Callable[[], Any] = auth.Boto3CredentialProvider(boto3.session.Session(profile_name=profile))
        return provider


_MADE_BY: dict[Scheme, tuple[str, str]] = {
    "s3": ("S3Store", "bucket"),
    "gs": ("GCSStore", "bucket"),
    "az": ("AzureStore", "container_name"),
}
_ENDPOINTS: dict[Scheme, list[tuple[str, ...]]] = {
    "s3": [
        ("aws_endpoint_url_s3", "AWS_ENDPOINT_URL_S3"),
        ("endpoint", "AWS_ENDPOINT", "AWS_ENDPOINT_URL"),
    ],
    "gs": [("base_url", "GOOGLE_BASE_URL")],
    "az": [("endpoint", "AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")],
}


def _options(query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for spelled, value in parse_qsl(query, keep_blank_values=True):
        name = spelled.lower()
        if _SECRETS.search(name):
            raise ValueError(f"a URL is no place for a secret. option={name}; put it into the environment")
        if name in options:
            raise ValueError(f"this option is there twice: {name}")
        if "@" in urlsplit(value).netloc:
            raise ValueError(f"a URL is no place for a password. option={name}; put it into the environment")
        options[name] = value
    timeout = options.get("timeout", "1")
    if not re.fullmatch(r"\d{1,3}(\.\d+)?", timeout) or not 0.05 <= float(timeout) <= 300.0:
        raise ValueError(f"timeout must be 0.05 to 300 seconds, not {timeout!r}")
    return options


def without_secrets(text: str) -> str:
    """*text* without what the environment keeps secret, and without queries, which hold Azure's signatures."""
    for name, value in os.environ.items():
        if len(value) > 3 and _SECRET_VARIABLES.match(name):
            text = text.replace(value, "***")
    return re.sub(r"\?[^\s`'\"]*", "", text)
