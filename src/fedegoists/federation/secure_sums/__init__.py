"""Secure sums: the server learns a weighted sum of members' vectors, and no single one of them.

Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS 2017,
with keys for the next round riding on the upload of this one:

1. Once for a session, each member makes keys and signs them with the key of its certificate
   (`SiloSums.advertise`). The server puts them together as a `Roster`, which every member checks.
2. For every round, each member makes a key for masks and a seed of its own, and gives every other
   member an encrypted share of both (`SiloSums.join`, later with each upload).
3. The server proposes an `Agreement`: who takes part, with which weights in which sums. Each member
   checks it and uploads its vector under masks that depend on all of it (`SiloSums.masked`).
4. The server tells who has uploaded. Each member gives a share of the seed of those who have, or of
   the key of those who have not (`SiloSums.unmasked`), once and never both. With enough shares the
   masks of the sum, and of nothing else, can be taken off (`SumCollector`).
"""
