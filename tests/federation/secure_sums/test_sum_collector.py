"""Secure sums as a whole: the sum is right, and the server sees nothing else."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedegoists.federation.secure_sums.fixed_point import decode, encode
from fedegoists.federation.secure_sums.sum_collector import SumCollector, TooFewError
from fedegoists.federation.secure_sums.sum_messages import AgreedSum, UnmaskShares, threshold
from tests.federation.secure_sums.sum_party import Party, refusal, sites_of, vectors_of

PROPERTY = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@st.composite
def rounds(draw):
    """Members, their weights, and those that drop out, before and after their upload arrived."""
    count = draw(st.integers(3, 9))
    sites = sites_of(count)
    raw = draw(st.lists(st.floats(0.2, 1.0), min_size=count, max_size=count))
    spare = count - threshold(count)
    dropped = draw(st.lists(st.sampled_from(sites), max_size=spare, unique=True))
    left = [site for site in sites if site not in dropped]
    spare = len(left) - threshold(count)
    silent = draw(st.lists(st.sampled_from(left), max_size=spare, unique=True))
    return sites, [weight / sum(raw) for weight in raw], dropped, silent, draw(st.integers(0, 99))


@PROPERTY
@given(rounds())
def test_the_sum_of_masked_vectors_is_that_of_plain_ones_whoever_drops_out(case):
    sites, weights, dropped, silent, seed = case
    party, vectors = Party(sites), vectors_of(sites, seed=seed, scale=10)
    agreement = party.agreement(weights)
    (one,) = party.round(vectors, dropped, silent, agreement)
    expected = sum(
        weight * vectors[site].double()
        for site, weight in zip(sites, weights, strict=True)
        if site not in dropped
    )
    assert set(one.members) == set(sites) - set(dropped)
    assert (decode(one.total) - expected).abs().max() <= len(sites) * 2.0**-25
    # The next round goes on with the keys that came with the uploads.
    (again,) = party.round(vectors)
    mean = torch.stack(list(vectors.values())).double().mean(0)
    assert (decode(again.total) - mean).abs().max() <= len(sites) * 2.0**-25


@PROPERTY
@given(st.integers(3, 9), st.data())
def test_below_the_threshold_there_is_an_error_and_nothing_is_asked_for(count, data):
    sites = sites_of(count)
    least = count - threshold(count) + 1
    dropped = data.draw(st.lists(st.sampled_from(sites), min_size=least, unique=True))
    party = Party(sites)
    with pytest.raises(TooFewError, match="at least"):
        party.round(vectors_of(sites), dropped)
    # Only masked vectors have been seen, no share.
    assert len(party.seen) == count


def test_too_few_shares_give_nothing():
    party = Party(sites_of(4))
    with pytest.raises(TooFewError, match="2 members gave shares"):
        party.round(vectors_of(sites_of(4)), silent=["s00", "s01"])


def encodings(vectors, weights):
    """All that a server would have to see to know a member's vector."""
    for (site, vector), weight in zip(vectors.items(), weights, strict=True):
        for share in (weight, 1.0):
            yield site, encode(vector, share).tobytes()
            yield site, (share * vector).numpy().astype("<f4").tobytes()


@pytest.mark.parametrize("dropped", [(), ("s02",)])
def test_what_the_server_sees_contains_no_vector(dropped):
    sites = sites_of(5)
    party, vectors = Party(sites), vectors_of(sites, length=200)
    party.round(vectors, dropped)
    whole = b"|".join(party.seen)
    for site, content in encodings(vectors, [0.2] * 5):
        for start in range(0, len(content) - 16, 16):  # nor any part of it
            assert content[start : start + 16] not in whole, site


def test_a_masked_vector_looks_uniform():
    # Of zeros: a bit of a uniform number is one in half of the cases, and bytes are equally
    # frequent. The bounds are six standard deviations.
    sites, length = sites_of(3), 100_000
    party = Party(sites)
    agreement = party.agreement()
    masked, _ = party.upload("s00", agreement, torch.zeros(length))
    bits = np.unpackbits(masked[0].view(np.uint8)).reshape(length, 32).mean(0)
    assert np.abs(bits - 0.5).max() < 6 * 0.5 / length**0.5
    counts = np.bincount(masked[0].view(np.uint8), minlength=256)
    chi = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    assert abs(chi - 255) < 6 * (2 * 255) ** 0.5


def test_a_member_whose_upload_comes_late_stays_hidden():
    # The server has its vector and, from the others' shares, its mask key; but not its own mask.
    sites = sites_of(4)
    party, vectors = Party(sites), vectors_of(sites)
    agreement = party.agreement()
    uploads = {site: party.upload(site, agreement, vectors[site])[0] for site in sites}
    collector = SumCollector(party.roster, agreement, 50)
    for site in sites[:3]:
        collector.add(site, uploads[site])
    order = collector.order()
    for site in sites[:3]:
        collector.share(site, party.silos[site].unmasked(order))
    assert "too late" in refusal(collector.add, "s03", uploads["s03"])
    total = decode(collector.sums()[0].total).float()
    alone = decode(uploads["s03"][0]).float()
    assert torch.corrcoef(torch.stack([alone, vectors["s03"]]))[0, 1].abs() < 0.6
    assert torch.allclose(total, sum(vectors[s] for s in sites[:3]) / 4, atol=1e-6)


def test_a_server_that_tells_members_different_things_gets_noise():
    sites = sites_of(4)
    party, vectors = Party(sites), vectors_of(sites)
    agreement = party.agreement()
    lie = agreement.changed(sums=(agreement.sums[0].changed(weights=(0.7, 0.1, 0.1, 0.1)),))
    collector = SumCollector(party.roster, agreement, 50)
    for site in sites:
        told = lie if site == "s00" else agreement
        collector.add(site, party.upload(site, told, vectors[site])[0])
    order = collector.order()
    assert "agreement is another" in refusal(party.silos["s00"].unmasked, order)
    for site in sites[1:]:
        collector.share(site, party.silos[site].unmasked(order))
    # Three of four is enough for the shares, but masks do not cancel.
    assert decode(collector.sums()[0].total).abs().mean() > 10


WRONG = "00" + "ab" * 32


def uploaded(party, vectors, dropped=()):
    """A round whose members have sent their vectors, and their shares."""
    agreement = party.agreement()
    collector = SumCollector(party.roster, agreement, 50)
    for site in party.silos:
        masked, _ = party.upload(site, agreement, vectors[site])
        if site not in dropped:
            collector.add(site, masked)
    order = collector.order()
    return collector, {site: party.silos[site].unmasked(order) for site in order.survivors}


def lies(shares):
    """Wrong shares of all secrets."""
    return UnmaskShares(
        seeds=dict.fromkeys(shares.seeds, WRONG), keys=dict.fromkeys(shares.keys, WRONG)
    )


# At most as many liars as shares more than needed, 4 of 15; then chance finds a choice without.
@pytest.mark.parametrize(
    ("count", "liars", "dropped"),
    [
        (5, ["s01"], ()),
        (15, ["s00"], ()),
        (15, ["s12"], ()),
        (15, ["s00"], ("s03",)),
        (15, ["s00", "s10"], ()),
        (15, ["s00", "s01", "s02"], ()),
    ],
)
def test_wrong_shares_are_left_out_and_the_liar_is_named(count, liars, dropped):
    sites = sites_of(count)
    party, vectors = Party(sites), vectors_of(sites)
    collector, shares = uploaded(party, vectors, dropped)
    for site, own in shares.items():
        collector.share(site, lies(own) if site in liars else own)
    expected = sum(vectors[site].double() for site in sites if site not in dropped) / count
    assert (decode(collector.sums()[0].total) - expected).abs().max() < 1e-6
    assert collector.liars() == tuple(liars)


def test_the_owner_of_a_secret_with_wrong_shares_is_named_and_not_who_holds_them():
    # s03 gave wrong shares of its secret to two members, who cannot know.
    sites = sites_of(9)
    party, vectors = Party(sites), vectors_of(sites)
    collector, shares = uploaded(party, vectors)
    for site, own in shares.items():
        wrong = {**own.seeds, "s03": WRONG} if site in ("s00", "s05") else own.seeds
        collector.share(site, own.changed(seeds=wrong))
    collector.sums()
    assert collector.liars() == ("s03",)


def test_nobody_is_named_where_all_shares_are_right():
    party = Party(sites_of(4))
    collector, shares = uploaded(party, vectors_of(sites_of(4)))
    for site, own in shares.items():
        collector.share(site, own)
    collector.sums()
    assert collector.liars() == ()


def test_too_many_liars_give_nothing():
    sites = sites_of(5)  # four are needed
    collector, shares = uploaded(Party(sites), vectors_of(sites))
    for site, own in shares.items():
        collector.share(site, lies(own) if site in sites[:2] else own)
    assert "are wrong" in refusal(collector.sums)


def test_vectors_and_shares_that_were_not_asked_for_are_refused():
    sites = sites_of(4)
    party, vectors = Party(sites), vectors_of(sites)
    agreement = party.agreement()
    collector = SumCollector(party.roster, agreement, 50)
    masked, _ = party.upload("s00", agreement, vectors["s00"])
    assert "other sums" in refusal(collector.add, "s00", {})
    assert "other sums" in refusal(collector.add, "x", masked)
    assert "another length" in refusal(collector.add, "s00", {0: masked[0][:-1]})
    collector.add("s00", masked)
    assert "twice" in refusal(collector.add, "s00", masked)
    for site in sites[1:]:
        collector.add(site, party.upload(site, agreement, vectors[site])[0])
    shares = party.silos["s00"].unmasked(collector.order())
    assert "than asked" in refusal(collector.share, "x", shares)
    both = UnmaskShares(seeds=shares.seeds, keys=shares.seeds)
    assert "than asked" in refusal(collector.share, "s00", both)


def mixtures(sites):
    """One mixture for each member, of it and its two neighbours."""
    return tuple(
        AgreedSum(
            members=tuple(sites[(k + step) % len(sites)] for step in range(3)),
            weights=(0.5, 0.3, 0.2),
            receiver=site,
        )
        for k, site in enumerate(sites)
    )


def test_only_its_receiver_can_read_a_mixture():
    sites = sites_of(5)
    party, vectors = Party(sites), vectors_of(sites, length=400)
    agreement = party.agreement(sums=mixtures(sites))
    sums = party.round(vectors, agreement=agreement)
    for k, site in enumerate(sites):
        agreed, one = agreement.sums[k], sums[k]
        expected = sum(
            weight * vectors[member].double()
            for member, weight in zip(agreed.members, agreed.weights, strict=True)
            if member in one.members
        )
        # To the server it is noise, also where the receiver has dropped out.
        assert decode(one.total).abs().mean() > 10
        read = party.silos[site].unblinded(agreement, k, one.members, one.total)
        assert (decode(read) - expected).abs().max() < 1e-6
        other = party.silos[sites[k - 1]]
        arguments = (agreement, k, one.members, one.total)
        assert "not the receiver" in refusal(other.unblinded, *arguments)
    whole = b"|".join(party.seen)
    for site, content in encodings(vectors, [0.5] * 5):
        assert content[:16] not in whole, site


def test_a_receiver_that_is_left_alone_is_not_shown():
    sites = sites_of(4)
    party, vectors = Party(sites), vectors_of(sites)
    lonely = AgreedSum(members=("s00",), weights=(0.5,), receiver="s00")
    agreement = party.agreement(sums=(lonely,))
    (one,) = party.round(vectors, agreement=agreement)
    assert one.members == ("s00",)
    assert decode(one.total).abs().mean() > 10
