"""Who may hold a connection: so many in all, and so many from one address. Whoever has one keeps it."""

from __future__ import annotations

import ipaddress
from collections import Counter


class Places:
    """Connections that are open, in all and by client; only the newest is ever refused."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()

    def take(self, address: str, most: int, most_each: int) -> bool:
        """Whether there is a place for one more connection from here."""
        client = _client(address)
        if self._taken.total() >= most or self._taken[client] >= most_each:
            return False
        self._taken[client] += 1
        return True

    def give_back(self, address: str) -> None:
        client = _client(address)
        self._taken[client] -= 1
        if not self._taken[client]:
            del self._taken[client]


def _client(address: str) -> str:
    """The address, or of IPv6 the network of 2^64 addresses that one customer gets."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address
