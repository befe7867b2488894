"""How fast the demonstration goes: at a stroll while somebody looks, briskly if nobody does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Pace:
    """Waits in seconds; None where nothing more comes after what is there at the start."""

    page: int  # conversions a run of the script takes
    script_every_s: float
    lease_s: int  # in real life 15 minutes: what a crashed script held comes back after it
    orders: int  # of known customers at the start; one more is held
    throws: bool = False  # Google may tell the script to come back in some minutes
    sales_every_s: float | None = None
    invoice_every_s: float | None = None
    order_every_s: float | None = None

    @property
    def goes_on(self) -> bool:
        """Whether new work keeps coming in."""
        return self.sales_every_s is not None


STROLL: Final = Pace(
    page=25,
    script_every_s=2.0,
    lease_s=15,
    orders=2,
    throws=True,
    sales_every_s=3.0,
    invoice_every_s=10.0,
    order_every_s=40.0,
)
BRISK: Final = Pace(page=100, script_every_s=0.5, lease_s=3, orders=1)
