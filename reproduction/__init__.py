"""The laboratory: the paper's tables and figures, and studies that go beyond the paper.

It is not part of the package, and needs a checkout of the repository:
``python -m reproduction --help``.
"""

from pathlib import Path

__all__ = ["COMMAND", "RESULTS"]

COMMAND = "python -m reproduction"
"""How the command line is called."""
RESULTS = Path(__file__).parent / "results"
"""The committed results, and where new ones go unless another folder is named."""
