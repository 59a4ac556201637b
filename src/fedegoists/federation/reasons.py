"""Reasons why there is no usable reply of a silo."""

from typing import Literal

Reason = Literal["timeout", "not finite", "wrong shape", "refused", "error"]
"""Why there is no usable reply; ``refused`` is by the silo's own limits."""
