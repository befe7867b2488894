"""Which addresses belong to the public internet."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

_NAT64 = IPv6Network("64:ff9b::/96")


def is_public(text: str) -> bool:
    """Whether it is a public address: not this machine, its network, or a multicast group."""
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        address = _inside(address) or address
    return address.is_global and not address.is_multicast


def _inside(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address inside some IPv6 addresses, to which a gateway would connect."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour
