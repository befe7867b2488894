"""Order bodies for tests, as JSON sends them."""

from typing import Any

from hypothesis import strategies as st

from kesin.workloads.optiplan.orders.payload import MAX_NAME, Payload, read_payload
from kesin.workloads.optiplan.workshop.saw_rules import BoardRules


def part(**other: Any) -> dict[str, Any]:
    return {
        "id": "p1",
        "part_type": "GOVDE",
        "material_code": "18MM 210*280",
        "length_cm": 72.2,
        "width_cm": 58,
        "quantity": 4,
        "grain": 1,
        "color": "Beyaz",
        "thickness_mm": 18,
        **other,
    }


def back(**other: Any) -> dict[str, Any]:
    return part(**{"part_type": "ARKALIK", "thickness_mm": 8, **other})


def order(*parts: dict[str, Any], **other: Any) -> dict[str, Any]:
    return {"order_id": "S-17", "customer_phone": "0555 123 45 67", "parts": list(parts) or [part()], **other}


def payload(*parts: dict[str, Any], **other: Any) -> Payload:
    return read_payload(order(*parts, **other))


def board(**other: Any) -> BoardRules:
    """A size in which a material is bought."""
    sides = {"length_mm": 2800, "width_mm": 2100}
    kind = {"code": "W", "material": "M", "thickness_mm": 18}
    return BoardRules.model_validate({**kind, **sides, **other})


# Everything an order may be.

_unfit = "\u2028\u2029\ufffe\uffff"
letters = st.characters(exclude_categories=["Cc", "Cs"], exclude_characters=_unfit)
texts = st.text(letters, max_size=20)
names = st.text(letters, min_size=1, max_size=MAX_NAME).filter(str.strip)
sizes_cm = st.one_of(st.integers(1, 1000), st.floats(0.01, 1000), st.decimals("0.01", "1000", places=3).map(float))
edges = st.sampled_from([None, "Bant Yok", "040", "1mm", "2mm"])


def parts(colors: st.SearchStrategy[str] = names) -> st.SearchStrategy[dict[str, Any]]:
    """Generate parts that the default rules cover."""
    common = {
        "id": names,
        "material_code": names,
        "length_cm": sizes_cm,
        "width_cm": sizes_cm,
        "quantity": st.integers(1, 10_000),
        "grain": st.integers(0, 3),
        "color": colors,
    }
    optional = {
        **{f"edge_{side}": edges for side in ("up", "lo", "sx", "dx")},
        "iidesc": texts,
        "desc1": texts,
        "delik_kodu": st.none() | texts,
    }
    body = st.fixed_dictionaries(
        {**common, "part_type": st.just("GOVDE"), "thickness_mm": st.sampled_from([18, 18.0, 3, 4, 5, 8])},
        optional=optional,
    )
    backs = st.fixed_dictionaries(
        {**common, "part_type": st.just("ARKALIK"), "thickness_mm": st.sampled_from([3, 4.0, 5, 8])}, optional=optional
    )
    return body | backs


orders = st.fixed_dictionaries(
    {
        "order_id": names,
        "customer_phone": st.text(letters, max_size=40),
        "parts": st.lists(parts(), min_size=1, max_size=4),
    },
    optional={
        "customer_snapshot_name": texts,
        "opti_mode": st.sampled_from(["A", "B", "C"]),
        "plate_size": st.fixed_dictionaries({"width_mm": st.integers(1, 10_000), "height_mm": st.floats(1, 10_000)}),
    },
)
