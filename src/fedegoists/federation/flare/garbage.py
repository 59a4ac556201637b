"""Memory that stays flat: what a carried message leaves behind is collected at once.

FLARE's calls leave objects that refer to each other and hold whole messages. Python looks for such
cycles when many objects were made, not when large ones were, and so would keep hundreds of them.
Besides, FLARE remembers every message that it has sent for five minutes, up to 10,000 of them, so
that it can tell what a late error is about: about a kilobyte each.
"""

import gc

from nvflare.fuel.f3.streaming import byte_streamer

__all__ = ["Garbage"]

EVERY = 32
"""Messages between two collections."""

REMEMBERED = 256
"""Messages sent of which FLARE remembers where they went."""


class Garbage:
    """Counts messages, and collects what they left every now and then."""

    def __init__(self) -> None:
        byte_streamer.MAX_STREAM_ERROR_CONTEXTS = REMEMBERED
        gc.collect()
        gc.freeze()  # what is here now stays anyway: collections need not look at it again
        self._messages = 0

    def message_done(self) -> None:
        """Count a message."""
        self._messages += 1
        if self._messages % EVERY == 0:
            gc.collect()
