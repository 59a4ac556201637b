"""Memory that stays flat: what a carried message leaves behind is collected at once.

FLARE's calls leave objects that refer to each other and hold whole messages. Python looks for such
cycles when many objects were made, not when large ones were, and so would keep hundreds of them.
"""

import gc

__all__ = ["Garbage"]

EVERY = 32
"""Messages between two collections."""


class Garbage:
    """Counts messages, and collects what they left every now and then."""

    def __init__(self) -> None:
        gc.collect()
        gc.freeze()  # what is here now stays anyway: collections need not look at it again
        self._messages = 0

    def message_done(self) -> None:
        """Count a message."""
        self._messages += 1
        if self._messages % EVERY == 0:
            gc.collect()
