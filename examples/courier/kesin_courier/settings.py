"""The settings of deliveries."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class CourierSettings(BaseSettings):
    """Read from ``KESIN_COURIER_…`` when the worker is created."""

    model_config = SettingsConfigDict(
        env_prefix="KESIN_COURIER_", env_ignore_empty=True, extra="ignore", frozen=True
    )

    allow_private: bool = False  # also allow this machine and its own network
    timeout_s: float = Field(10, gt=0, le=60)  # to connect, and again for the response
