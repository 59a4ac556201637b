"""Secure sums without a network: what masks cost a member and the server, per million parameters.

Plain is what a server without masks does: multiply each vector by its weight, and add. A member's
time holds encoding, all masks, and the keys for the next round; the server's, adding all vectors
and taking masks off, with and without members that dropped out.
"""

import argparse
import time
from collections.abc import Callable

import torch

from benchmarks.measure import report
from fedegoists.federation.secure_sums.fixed_point import decode, encode
from fedegoists.federation.secure_sums.sum_collector import SumCollector
from tests.federation.secure_sums.sum_party import Party, sites_of

PARAMETERS = 1_000_000


def seconds(call: Callable[[], object]) -> tuple[float, object]:
    """Return how long a call takes, and what it returns."""
    began = time.perf_counter()
    result = call()
    return time.perf_counter() - began, result


def measure(members: int, dropped: int) -> dict[str, float]:
    """Carry out one round."""
    sites = sites_of(members)
    party = Party(sites)
    generator = torch.Generator().manual_seed(0)
    vectors = {site: torch.randn(PARAMETERS, generator=generator) for site in sites}
    agreement = party.agreement()
    plain, _ = seconds(lambda: sum(one / members for one in vectors.values()))
    collector = SumCollector(party.roster, agreement, PARAMETERS)
    encoding, masking = [], []
    for k, site in enumerate(sites):
        took, _ = seconds(lambda site=site: encode(vectors[site], 1 / members))  # type: ignore[misc]
        encoding.append(took)
        took, result = seconds(
            lambda site=site: party.upload(site, agreement, vectors[site])  # type: ignore[misc]
        )
        masking.append(took)
        if k >= dropped:
            collector.add(site, result[0])  # type: ignore[index]
    order = collector.order()
    sharing = []
    for site in order.survivors:
        took, shares = seconds(lambda site=site: party.silos[site].unmasked(order))  # type: ignore[misc]
        sharing.append(took)
        collector.share(site, shares)  # type: ignore[arg-type]
    unmasking, sums = seconds(collector.sums)
    expected = sum(vectors[site].double() / members for site in sites[dropped:])
    error = (decode(sums[0].total) - expected).abs().max()  # type: ignore[index]
    return {
        "members": members,
        "dropped": dropped,
        "plain_ms": 1000 * plain,
        "encode_ms": 1000 * sum(encoding) / members,
        "member_ms": 1000 * sum(masking) / members,
        "shares_ms": 1000 * sum(sharing) / len(sharing),
        "server_ms": 1000 * unmasking,
        "largest_error": float(error),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, nargs="+", default=[3, 10, 30])
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [
        measure(members, dropped)
        for members in options.members
        for dropped in ((0,) if members < 4 else (0, members // 3 - 1 or 1))
    ]
    for row in rows:
        print(", ".join(f"{key} {value:.4g}" for key, value in row.items()), flush=True)
    columns = list(rows[0])
    title = "Secure sums in one process, per million parameters"
    report("secure_sums", title, columns, [[f"{row[c]:.4g}" for c in columns] for row in rows])


if __name__ == "__main__":
    main()
