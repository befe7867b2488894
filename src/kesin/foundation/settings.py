"""Settings: read from environment variables ``KESIN_…`` and validated once.

A setting is a field with a description. `kesin doctor` shows every setting with its value and its
source.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property, lru_cache
from ipaddress import ip_network
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

PREFIX: Final = "KESIN_"
DATABASE_FILE: Final = "kesin.db"
SQLITE_SCHEME: Final = "sqlite:///"
POSTGRES_SCHEMES: Final = ("postgresql://", "postgres://")
_PASSWORD = re.compile(r"(//[^/?#@:]*:).*@", re.DOTALL)  # the password may contain an @
_HOST_NAME = re.compile(r"[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]")
_SECRET_PART = re.compile(r"((?:^|[?&\s])\w*(?:password|secret|token)\w*=)[^&\s]*", re.IGNORECASE)


class BadSettings(ValueError):
    """An environment variable has an invalid value; the message names it and what it accepts."""


class Settings(BaseSettings):
    """The configuration of a process. Empty variables count as unset."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, extra="ignore", frozen=True
    )

    data_dir: Path = Field(Path("kesin-data"), description="a folder for everything kept on disk")
    database_url: str | None = Field(
        None, description="a file, sqlite:///file or postgresql://…; a file in the folder if unset"
    )
    redis_url: str | None = Field(None, description="redis://…, for the PDF workload")
    host: str = Field("127.0.0.1", description="the address the server listens on")
    port: int = Field(8000, ge=1, le=65535, description="a whole number in 1…65535")
    log: Literal["console", "json"] = Field("console", description="console or json")
    cron_secret: SecretStr | None = Field(
        None, min_length=16, description="16 or more characters, for the cron endpoints"
    )
    secret_keys: SecretStr | None = Field(
        None, description="name:key,… from `kesin secrets new-key`; the first one seals"
    )
    trusted_proxies: str = Field(
        "", description="addresses or networks, with commas, whose X-Forwarded- headers count"
    )
    allowed_hosts: str = Field(
        "", description="names of this service, with commas and without ports; any if unset"
    )
    grace_s: float = Field(30, gt=0, le=600, description="seconds in 0…600 a stop may take")
    body_limit: int = Field(
        10_000_000, ge=1_000, le=1_000_000_000, description="bytes in 1000…1000000000"
    )
    body_timeout_s: float = Field(25, gt=0, le=600, description="seconds in 0…600")
    header_timeout_s: float = Field(10, gt=0, le=600, description="seconds in 0…600")
    connections_per_address: int = Field(
        200, ge=1, le=100_000, description="connections in 1…100000 that an address may have open"
    )
    request_timeout_s: float = Field(30, gt=0, le=600, description="seconds in 0…600")
    rate_per_s: float = Field(100, gt=0, le=1e6, description="requests a second, for each key")
    sign_in_per_min: int = Field(10, ge=1, le=10_000, description="tries a minute in 1…10000")
    sweep_s: float = Field(
        60, ge=1, le=3_600, description="seconds in 1…3600 between sweeps (cap, recover, …)"
    )
    tidy_s: float = Field(
        3_600, ge=1, le=86_400, description="seconds in 1…86400 between expiry and pruning"
    )
    audit_days: int = Field(400, ge=1, le=36_500, description="days in 1…36500")
    min_free_mb: int = Field(100, ge=0, le=10**7, description="megabytes the disk must have free")
    oci_max_attempts_script: int = Field(5, ge=1, le=20, description="claims by a script in 1…20")
    oci_max_attempts_api: int = Field(8, ge=1, le=20, description="uploads by our worker in 1…20")
    oci_revive: bool = Field(
        default=True, description="true or false: passing failures are tried again"
    )
    oci_google_url: str = Field(
        "https://googleads.googleapis.com", description="where the Google Ads API is"
    )
    oci_google_version: str = Field(
        "v26", pattern=r"^v[1-9][0-9]?$", description="a version of that API, v26"
    )
    oci_data_manager_url: str = Field(
        "https://datamanager.googleapis.com", description="where the Data Manager API is"
    )
    oci_token_url: str = Field(
        "https://oauth2.googleapis.com/token", description="where access tokens come from"
    )
    oci_timeout_s: float = Field(30, gt=0, le=600, description="seconds in 0…600 Google may take")
    oci_upload_every_s: float = Field(
        60, ge=0, le=86_400, description="seconds in 0…86400 between uploads of a site"
    )
    oci_silent_hours: int = Field(
        24, ge=1, le=720, description="hours in 1…720 a script may be silent before a warning"
    )

    pdf_chromium: str = Field("", description="the browser's program; the first on PATH if unset")
    pdf_isolation: Literal["page", "context"] = Field("page", description="page or context")
    pdf_sandbox: Literal["auto", "on", "off"] = Field("auto", description="auto, on or off")
    pdf_templates: Path | None = Field(None, description="a folder with templates of your own")
    pdf_hard_timeout_s: int = Field(
        60, ge=1, le=600, description="seconds in 1…600 a document may take"
    )
    pdf_picture_megapixels: int = Field(
        25, ge=1, le=1_000, description="millions of pixels in 1…1000 a picture may have"
    )
    pdf_document_megapixels: int = Field(
        60, ge=1, le=1_000, description="millions of pixels in 1…1000 of all its pictures"
    )
    pdf_processes: int = Field(
        1, ge=0, le=32, description="processes in 0…32 that `kesin serve` keeps for rendering"
    )
    pdf_allowed_templates: str = Field(
        "", description="names with commas; those that come with Kesin if unset"
    )
    pdf_allowed_urls: str = Field(
        "", description="patterns, with spaces between, of URLs that a document may load"
    )
    pdf_artifacts: str = Field(
        "", description="a folder or s3://bucket/prefix; artifacts in the data folder if unset"
    )
    pdf_fail_safe: Literal["strict", "degrade"] = Field(
        "strict", description="strict or degrade: while nothing renders, 503 or the HTML"
    )
    pdf_ttl_hours: int = Field(24, ge=1, le=720, description="hours in 1…720 a PDF is kept")
    pdf_max_queued: int = Field(
        1_000, ge=1, le=1_000_000, description="waiting jobs in 1…1000000 before 429"
    )
    pdf_webhooks: str = Field(
        "", description="patterns, with spaces between, of URLs that may be told"
    )
    pdf_webhook_secret: SecretStr | None = Field(
        None, min_length=16, description="16 or more characters, from which owners get theirs"
    )

    optiplan_program_timeout_s: float = Field(
        600, gt=0, le=86_400, description="seconds in 0…86400 the optimiser may take"
    )
    optiplan_macro_command: str = Field(
        "", description="a command for mode B, with {macro} where the macro's path belongs"
    )
    optiplan_xsd: Path | None = Field(None, description="a schema that solutions must meet")

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

    @field_validator("allowed_hosts")
    @classmethod
    def _host_names(cls, text: str) -> str:
        for name in text.split(","):
            if name.strip() and not _HOST_NAME.fullmatch(name.strip()):
                raise ValueError("no name of a host")
        return text

    @field_validator("redis_url")
    @classmethod
    def _known_redis(cls, url: str | None) -> str | None:
        if url and not url.startswith(("redis://", "rediss://", "unix://")):
            raise ValueError("no address of a Redis")
        return url

    @cached_property
    def allowed_host_names(self) -> frozenset[str]:
        """The names of ``allowed_hosts`` in lower case; none if every name is allowed."""
        names = (name.strip().lower() for name in self.allowed_hosts.split(","))
        return frozenset(name for name in names if name)

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


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting for display; secrets are masked."""

    name: str
    value: str
    source: Literal["environment", "default"]


def load_settings() -> Settings:
    """The settings of this process; raises BadSettings that lists all invalid variables."""
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
    """The environment variable of a field."""
    return PREFIX + field.upper()


def describe_settings(settings: Settings) -> list[Setting]:
    """Every setting with its value and its source."""
    set_variables = {name.upper() for name, value in os.environ.items() if value}
    described_settings = []
    for field in Settings.model_fields:
        value = settings.database if field == "database_url" else getattr(settings, field)
        source: Literal["environment", "default"] = (
            "environment" if variable(field) in set_variables else "default"
        )
        text = "" if value is None else mask_secrets(str(value))
        described_settings.append(Setting(variable(field), text, source))
    return described_settings


def unknown_variables(environment: Mapping[str, str] | None = None) -> dict[str, str | None]:
    """Variables with the prefix that are no settings, each with the most similar setting."""
    environment = os.environ if environment is None else environment
    names = [field.upper() for field in Settings.model_fields]
    unknown: dict[str, str | None] = {}
    for name in sorted(environment):
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
