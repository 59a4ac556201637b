"""Silos at organisations of their own, reached over NVIDIA FLARE.

The coordinator's side is `fedegoists.federation.flare.federation`, a silo's side
`fedegoists.federation.flare.silo`. Only values travel, never code, see
`fedegoists.federation.flare.wire`.
"""
