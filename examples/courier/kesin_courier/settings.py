"""What an operator decides about deliveries."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class CourierSettings(BaseSettings):
    """Read from ``KESIN_COURIER_…`` when the worker is made."""

    model_config = SettingsConfigDict(
        env_prefix="KESIN_COURIER_", env_ignore_empty=True, extra="ignore", frozen=True
    )

    allow_private: bool = False  # deliver to this machine and its own network, too
    timeout_s: float = Field(10, gt=0, le=60)  # to connect, and again for the answer
