"""How long certificates take to make and to check, and whether forged ones are found.

    python -m benchmarks.bench_proofs [--honest N] [--forged N] [--large N]

Random consortia of 2 to 24 participants (and of 50, with --large) over many densities and levels of
competition. Each certificate is checked by the package and by the stand-alone program; each forgery
has one false claim and digests that fit it.
"""

import argparse
import hashlib
import json
import random
import re
import sys
import time

from benchmarks.measure import random_consortium, report
from fedegoists import Certificate, form
from fedegoists.coalitions.proof import check as stand_alone

DENSITIES = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
COMPETITIONS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)


def drawn(rng: random.Random, smallest: int, largest: int):
    n, seed = rng.randint(smallest, largest), rng.randrange(10**9)
    return random_consortium(n, rng.choice(DENSITIES), rng.choice(COMPETITIONS), seed)


def timed(work):
    """Return what a call returns, and the processor seconds that it took."""
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


def sealed(document: dict) -> str:
    """Return a certificate's text with a digest of the file that fits."""
    document["sha256"] = "0" * 64
    text = json.dumps(document, ensure_ascii=False, indent=1) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    return re.sub(r'0{64}("\n}\n)\Z', rf"{digest}\1", text)


def forge(rng: random.Random, document: dict) -> bool:
    """Make one false claim about an optimum; False if this kind is not possible here."""
    claims = {claim["claim"]: claim for claim in document["claims"]}
    large = [group for group in document["coalitions"] if len(group) > 1]
    kind = rng.choice(["bound", "prices", "worse", "welfare"])
    if kind == "bound":
        claims["upper bound"]["value"] *= 1 - 1e-6
    elif kind == "prices" and document.get("proof"):
        entry = rng.choice(document["proof"])
        k = max(range(len(entry["prices"])), key=entry["prices"].__getitem__)
        entry["prices"][k] *= 0.5
    elif kind == "worse" and large:
        group = rng.choice(large)
        name = group.pop()
        document["coalitions"].append([name])
        edges = document["benefit"]["edges"]
        lost = sum(w for a, b, w in edges if name in (a, b) and {a, b} <= {name, *group})
        for claim in ("welfare", "upper bound"):
            claims[claim]["value"] -= lost
    elif kind == "welfare":
        claims["welfare"]["value"] *= 1 + 1e-6
    else:
        return False
    return True


def honest(count: int, smallest: int, largest: int, limit: float, seed: int) -> list[object]:
    rng = random.Random(seed)
    optimal = certified = confirmed = alone = 0
    longest = [0.0, 0.0, 0.0]
    for _ in range(count):
        formation = form(*drawn(rng, smallest, largest), time_limit=limit)
        text, making = timed(lambda one=formation: one.certificate.to_json())
        result, checking = timed(lambda one=text: Certificate.from_json(one).check(time_limit=60))
        (fine, _, _), by_itself = timed(lambda one=text: stand_alone.check(one))
        optimal += formation.optimal
        certified += Certificate.from_json(text).formation().optimal
        confirmed += result.ok
        alone += fine
        times = (making, checking, by_itself)
        longest = [max(old, new) for old, new in zip(longest, times, strict=True)]
    size = f"{smallest} to {largest}" if smallest < largest else str(largest)
    return [size, count, optimal, certified, confirmed, alone, *(f"{t:.2f}" for t in longest)]


def forgeries(count: int) -> list[object]:
    rng = random.Random(2)
    made = package = alone = 0
    while made < count:
        formation = form(*drawn(rng, 4, 24), time_limit=2)
        document = json.loads(formation.certificate.to_json())
        if not formation.optimal or not formation.welfare or not forge(rng, document):
            continue
        text = sealed(document)
        made += 1
        package += not Certificate.from_json(text).check(time_limit=60).ok
        alone += not stand_alone.check(text)[0]
    return [made, package, alone]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--honest", type=int, default=2000)
    parser.add_argument("--forged", type=int, default=1000)
    parser.add_argument("--large", type=int, default=100)
    chosen = parser.parse_args()
    sys.setrecursionlimit(20_000)
    rows = [honest(chosen.honest, 2, 24, 2.0, 1)]
    if chosen.large:
        rows.append(honest(chosen.large, 50, 50, 4.0, 3))
    head = ("participants", "certificates", "optimal", "certified optimal", "confirmed")
    more = ("confirmed by check.py", "making, longest s", "checking", "check.py")
    report("proofs_honest", "Honest certificates", (*head, *more), rows)
    head = ("forged and resealed", "rejected", "rejected by check.py")
    report("proofs_forged", "Forged certificates", head, [forgeries(chosen.forged)])


if __name__ == "__main__":
    main()
