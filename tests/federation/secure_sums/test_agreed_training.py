"""The company of a sum: who adds with which weights, and the noise in another one."""

import math

from fedegoists.federation.secure_sums.agreed_training import company_of, noise_length
from fedegoists.federation.secure_sums.sum_messages import AgreedSum
from tests.federation.secure_sums.sum_party import Party, sites_of

PARTY = Party(sites_of(4))
SITES = tuple(PARTY.silos)


def company(*weights, members=SITES, receiver=None, present=None, **more):
    one = AgreedSum(members=members, weights=weights, receiver=receiver)
    return company_of(PARTY.agreement(sums=(one,), **more), "s00", present)


def test_a_company_is_its_members_weights_and_receiver():
    different = [
        company(0.25, 0.25, 0.25, 0.25),
        company(0.3, 0.25, 0.25, 0.2),
        company(0.25, 0.25, 0.25, 0.25, receiver="s01"),
        company(0.4, 0.3, 0.3, members=SITES[:3]),
        # With 30 bits, the difference of the two sums would tell that of two members' models.
        company(0.25, 0.25, 0.25 + 2e-7, 0.25 - 2e-7),
    ]
    assert len(set(different)) == len(different)


def test_keys_rounds_and_labels_do_not_matter():
    assert company(0.25, 0.25, 0.25, 0.25) == company(0.25, 0.25, 0.25, 0.25, label="another")
    assert company(0.5, 0.25, 0.25, members=SITES[:3]) == company(
        0.4, 0.2, 0.2, 0.2, present=SITES[:3]
    )
    assert company(0.5, 0.25, 0.25, 0.0) == company(0.5, 0.25, 0.25, members=SITES[:3])


def test_sums_without_a_part_of_the_member_do_not_matter():
    agreed = AgreedSum(members=SITES[:3], weights=(0.4, 0.3, 0.3))
    other = AgreedSum(members=SITES[3:], weights=(1.0,), receiver="s03")
    one, both = (PARTY.agreement(sums=sums) for sums in ((agreed,), (agreed, other)))
    assert company_of(one, "s00") == company_of(both, "s00")
    assert company_of(both, "s03") != company_of(both, "s00")


def test_a_mean_over_any_number_of_companies_does_not_wear_the_noise_off():
    # Weighted as well as can be, the variance of a mean is the inverse of the sum of inverses.
    for members in (3, 10):
        inverses = [noise_length(k, members) ** -2 for k in range(1, 100 * members)]
        assert math.sqrt((members - 1) / math.fsum(inverses)) > 0.15
    assert noise_length(0, 5) == 0
