"""Messages to be published, as the state machine draws them and as a user types them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

PRIORITIES = st.sampled_from([None, 0, 25, 25, 100, -5])
# Everything happens at even milliseconds but expiry: what happens at the same moment has no order.
DELAYS = st.sampled_from([None, None, None, 0, 10, 20, 1_000, 3_000, 60_000, 3_600_000])
TTLS = st.sampled_from([None, None, None, 15, 1_001, 5_001, 90_001])
KEYS = st.sampled_from([None, None, "k1", "k2", "k3"])
DRAFTS = st.fixed_dictionaries({"priority": PRIORITIES, "delay": DELAYS, "ttl": TTLS, "key": KEYS})


def typed(draft: dict[str, Any]) -> dict[str, Any]:
    """A draft as a user types it."""
    headers = None if draft["key"] is None else {"h": draft["key"]}
    return {
        "priority": draft["priority"],
        "delay": ms(draft["delay"]),
        "ttl": ms(draft["ttl"]),
        "key": draft["key"],
        "headers": headers,
    }


def ms(value: int | None) -> str | None:
    return None if value is None else f"{value}ms"
