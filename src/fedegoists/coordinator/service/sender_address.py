"""The addresses of one sender, for limits that are per sender."""

import ipaddress


def address_group(address: str) -> str:
    """Return the addresses that one sender can be expected to have.

    Examples
    --------
    >>> address_group("192.0.2.7"), address_group("2001:db8:1:2:3::4")
    ('192.0.2.7', '2001:db8:1:2::/64')
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4:
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))
