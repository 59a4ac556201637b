"""Silos at organisations of their own, reached over NVIDIA FLARE.

The coordinator's side is `fedegoists.federation.flare.flare_federation`, a silo's side
`fedegoists.federation.flare.silo_service`. Only values travel, never code, see
`fedegoists.federation.flare.wire`.
"""
