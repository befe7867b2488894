"""Settings: read from environment variables ``KESIN_…`` and validated once."""

import os
import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cached_property, lru_cache
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

Source = Literal["environment", "default"]

PREFIX: Final = "KESIN_"
DATABASE_FILE: Final = "kesin.db"
SQLITE_SCHEME: Final = "sqlite:///"
POSTGRES_SCHEMES: Final = ("postgresql://", "postgres://")
_PASSWORD = re.compile(r"(//[^/?#@:]*:).*@", re.DOTALL)  # the password may contain an @
_HOST_NAME = r"[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]"
_SECRET_PART = re.compile(r"((?:^|[?&\s])\w*(?:password|secret|token)\w*=)[^&\s]*", re.IGNORECASE)


class BadSettings(ValueError):
    """An environment variable has an invalid value; the message names it and what it accepts."""


def _env(default: Any, takes: str, **limits: Any) -> Any:
    """A setting with its default; the message about an invalid value says what it accepts."""
    return Field(default, description=takes, **limits)


class Settings(BaseSettings):
    """The configuration of a process. An empty variable counts as unset."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, extra="ignore", frozen=True)

    data_dir: Path = _env(Path("kesin-data"), "a folder on disk for all data")
    database_url: str | None = _env(
        None, "a file, sqlite:///file or postgresql://…; kesin.db in the data folder if unset"
    )
    redis_url: str | None = _env(None, "redis://…, for the PDF workload", pattern=r"^((rediss?|unix)://|$)")
    host: str = _env("127.0.0.1", "the address the server listens on")
    port: int = _env(8000, "a whole number from 1 to 65535", ge=1, le=65535)
    log: Literal["console", "json"] = _env("console", "console or json")
    cron_secret: SecretStr | None = _env(None, "16 or more characters, for the cron endpoints", min_length=16)
    secret_keys: SecretStr | None = _env(None, "name:key,… from `kesin secrets new-key`; the first key seals")
    public_url: str = _env(
        "",
        "the address at which others reach this service, such as https://kesin.example.com",
        pattern=r"^(https?://[^\s/?#@]+(/[^\s?#]*)?)?$",
    )
    trusted_proxies: str = _env("", "comma-separated addresses or networks whose X-Forwarded-* headers are trusted")
    allowed_hosts: str = _env(
        "",
        "comma-separated host names of this service, without ports; any host if unset",
        pattern=rf"^(\s*({_HOST_NAME})?\s*(,|$))*$",
    )
    grace_s: float = _env(30, "0…600 seconds to stop", gt=0, le=600)
    body_limit: int = _env(10_000_000, "1000…1000000000 bytes", ge=1_000, le=1_000_000_000)
    body_timeout_s: float = _env(25, "0…600 seconds", gt=0, le=600)
    header_timeout_s: float = _env(10, "0…600 seconds", gt=0, le=600)
    connections_per_address: int = _env(200, "1…100000 open connections from one address", ge=1, le=100_000)
    request_timeout_s: float = _env(30, "0…600 seconds", gt=0, le=600)
    rate_per_s: float = _env(100, "0…1000000 requests per second for each key", gt=0, le=1e6)
    sign_in_per_min: int = _env(10, "1…10000 attempts per minute", ge=1, le=10_000)
    sweep_s: float = _env(60, "1…3600 seconds between sweeps (recover, revive, …)", ge=1, le=3_600)
    tidy_s: float = _env(3_600, "1…86400 seconds between expire and prune passes", ge=1, le=86_400)
    audit_days: int = _env(400, "1…36500 days", ge=1, le=36_500)
    min_free_mb: int = _env(100, "0…10000000 megabytes of free disk space", ge=0, le=10**7)
    oci_max_attempts_script: int = _env(5, "1…20 claims by a script", ge=1, le=20)
    oci_max_attempts_api: int = _env(8, "1…20 claims by Kesin's worker", ge=1, le=20)
    oci_revive: bool = _env(default=True, takes="true or false")
    oci_google_url: str = _env("https://googleads.googleapis.com", "an https address")
    oci_google_version: str = _env("v26", "a version such as v26", pattern=r"^v[1-9][0-9]?$")
    oci_data_manager_url: str = _env("https://datamanager.googleapis.com", "an https address")
    oci_token_url: str = _env("https://oauth2.googleapis.com/token", "an https address")
    oci_timeout_s: float = _env(30, "0…600 seconds for a response from Google", gt=0, le=600)
    oci_upload_every_s: float = _env(60, "0…86400 seconds between uploads for a site", ge=0, le=86_400)
    oci_silent_hours: int = _env(24, "1…720 hours without a script report before a warning", ge=1, le=720)

    pdf_chromium: str = _env("", "a browser's name or path; the first on PATH if unset")
    pdf_isolation: Literal["page", "context"] = _env("page", "page or context")
    pdf_sandbox: Literal["auto", "on", "off"] = _env("auto", "auto, on or off")
    pdf_templates: Path | None = _env(None, "a folder with your own templates")
    pdf_fonts: Path | None = _env(None, "a folder with additional fonts")
    pdf_font_kib: int = _env(512, "1…2048 KiB for each additional font", ge=1, le=2_048)
    pdf_all_fonts_kib: int = _env(1_024, "1…2048 KiB for all additional fonts", ge=1, le=2_048)
    pdf_max_fonts: int = _env(16, "1…200 additional fonts", ge=1, le=200)
    pdf_hard_timeout_s: int = _env(60, "1…600 seconds for each document", ge=1, le=600)
    pdf_picture_megapixels: int = _env(25, "1…1000 megapixels for each picture", ge=1, le=1_000)
    pdf_document_megapixels: int = _env(60, "1…1000 megapixels for all pictures in a document", ge=1, le=1_000)
    pdf_processes: int = _env(1, "0…32 rendering processes in `kesin serve`", ge=0, le=32)
    pdf_allowed_templates: str = _env("", "comma-separated names; the included templates if unset")
    pdf_allowed_urls: str = _env("", "space-separated regular expressions for URLs that a document may load")
    pdf_artifacts: str = _env("", "a folder or s3://bucket/prefix; artifacts in the data folder if unset")
    pdf_fail_safe: Literal["strict", "degrade"] = _env(
        "strict", "strict or degrade: 503 or the HTML while no PDF worker is running"
    )
    pdf_upload_mb: int = _env(20, "1…1000 megabytes for each upload", ge=1, le=1_000)
    pdf_upload_hours: int = _env(24, "1…720 hours; how long requests can use an upload", ge=1, le=720)
    pdf_ttl_hours: int = _env(24, "1…720 hours; how long a PDF is kept", ge=1, le=720)
    pdf_body_kb: int = _env(256, "1…2048 KiB for a request for a PDF", ge=1, le=2_048)
    pdf_html_kb: int = _env(1_024, "1…5120 KiB for a request with HTML", ge=1, le=5_120)
    pdf_max_queued: int = _env(1_000, "1…1000000 waiting jobs before 429", ge=1, le=1_000_000)
    pdf_max_queued_per_owner: int = _env(
        1_000_000, "1…1000000 waiting jobs of one client before 429", ge=1, le=1_000_000
    )
    pdf_webhooks: str = _env("", "space-separated regular expressions for webhook URLs")
    pdf_webhook_secret: SecretStr | None = _env(
        None, "16 or more characters, from which each client's secret is derived", min_length=16
    )

    optiplan_program_timeout_s: float = _env(600, "0…86400 seconds for the optimiser", gt=0, le=86_400)
    optiplan_macro_command: str = _env("", "a command for mode B, with {macro} in place of the macro's path")
    optiplan_xsd: Path | None = _env(None, "an XML schema (XSD) for the solutions")

    @field_validator("oci_google_url", "oci_data_manager_url", "oci_token_url")
    @classmethod
    def _safe_address(cls, url: str) -> str:
        parts = urlsplit(url)
        if not parts.hostname or parts.username or parts.query:
            raise ValueError("no address")
        if parts.scheme != "https" and (parts.scheme, parts.hostname) != ("http", "127.0.0.1"):
            raise ValueError("secrets travel over https only")
        return url.rstrip("/")

    @field_validator("database_url")
    @classmethod
    def _known_database(cls, url: str | None) -> str | None:
        if url and "://" in url and not url.startswith((SQLITE_SCHEME, *POSTGRES_SCHEMES)):
            raise ValueError("an unknown kind of database")
        return url

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, text: str) -> str:
        for network in text.split(","):
            if network.strip():
                ip_network(network.strip(), strict=False)
        return text

    @cached_property
    def allowed_host_names(self) -> frozenset[str]:
        """The names of ``allowed_hosts`` in lower case; none if every name is allowed."""
        names = (name.strip().lower() for name in self.allowed_hosts.split(","))
        return frozenset(name for name in names if name)

    @property
    def largest_body(self) -> int:
        """The size in bytes of the largest body that any route accepts."""
        return max(self.body_limit, self.pdf_upload_mb * 1_000_000)

    @property
    def database(self) -> str:
        """The address of the database, for ``open_store``."""
        return self.database_url or str(self.data_dir / DATABASE_FILE)

    @property
    def database_file(self) -> Path | None:
        """The SQLite file; None for a database server."""
        if self.database.startswith(POSTGRES_SCHEMES):
            return None
        return Path(self.database.removeprefix(SQLITE_SCHEME))


def load_settings() -> Settings:
    """The settings of this process; raises BadSettings, which lists all invalid variables."""
    return _load(frozenset(pair for pair in os.environ.items() if _has_prefix(pair[0])))


def _has_prefix(name: str) -> bool:
    return name.upper().startswith(PREFIX)


@lru_cache(maxsize=1)
def _load(_given: frozenset[tuple[str, str]]) -> Settings:
    """Read the settings; cached until a variable changes, as every lifecycle reads them."""
    try:
        return Settings()
    except ValidationError as problem:
        raise BadSettings("; ".join(_error_sentences(problem))) from None


def _error_sentences(problem: ValidationError) -> Iterator[str]:
    for error in problem.errors(include_url=False):
        field = str(error["loc"][0])
        takes = Settings.model_fields[field].description
        secret = "SecretStr" in str(Settings.model_fields[field].annotation)
        got = "something else" if secret else repr(mask_secrets(str(error["input"])))
        yield f"{variable(field)} must be {takes}, got {got}"


def variable(field: str) -> str:
    return PREFIX + field.upper()


def describe_settings(settings: Settings) -> dict[str, tuple[str, Source]]:
    """Variable → its value, without secrets, and where that comes from."""
    set_variables = {name.upper() for name, value in os.environ.items() if value}
    described: dict[str, tuple[str, Source]] = {}
    for field in Settings.model_fields:
        value = settings.database if field == "database_url" else getattr(settings, field)
        source: Source = "environment" if variable(field) in set_variables else "default"
        described[variable(field)] = "" if value is None else mask_secrets(str(value)), source
    return described


def unknown_variables() -> dict[str, str | None]:
    """Variables with the prefix that are no settings, each with the most similar setting."""
    names = [field.upper() for field in Settings.model_fields]
    unknown: dict[str, str | None] = {}
    for name in sorted(os.environ):
        word = name.upper().removeprefix(PREFIX)
        if _has_prefix(name) and word not in names:
            close = get_close_matches(word, names, n=1)
            unknown[name] = PREFIX + close[0] if close else None
    return unknown


def mask_secrets(text: str) -> str:
    """The text without the passwords of an address, even of a malformed one."""
    try:
        urlsplit(text if "://" in text else "")
    except ValueError:
        return "…"
    text = _PASSWORD.sub(r"\1…@", text)
    return _SECRET_PART.sub(r"\1…", text)
