"""Write the lock files: exact versions from constraints.txt, with the hashes of all their files.

``make lock`` runs this with ``uv``, after a change of constraints.txt or of the dependencies in
pyproject.toml. ``pip install --require-hashes`` accepts no other file than those named in a lock.

PyTorch is left out, with the CUDA libraries that its wheels for Linux bring. The same version has
different wheels for different devices, from different places, whose hashes no single list has; pip
then compares only the hash that the index itself gives.
"""

import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
PROJECT = FOLDER.parent
OLDEST_PYTHON = "3.11.5"
BUILD = ["hatchling", "editables"]
"""What is needed to install the project itself without an isolated, unlocked environment."""

EXTRAS = {
    "train": ["train"],
    "flare": ["train", "flare"],
    "dev": ["dev", "train", "privacy", "flare", "coordinator", "postgresql"],
}
CORE = ["hypothesis", "pytest", "pytest-xdist"]
CORE_EXTRAS = ["--extra=draw", "--extra=exact"]
"""What the tests of the rooms without PyTorch need besides the package."""
UNLOCKED = re.compile(r"(torch|triton|nvidia-.*|cuda-.*)==")

HEADER = """\
# Written by `make lock` from constraints.txt and pyproject.toml; do not edit.
# pip install --require-hashes --no-deps -r this file; then torch; then the project with --no-deps.
"""


def compiled(arguments: list[str], wanted: list[str]) -> str:
    """Return the lock of some requirements, as uv writes it."""
    command = ["uv", "pip", "compile", "--quiet", "--universal", "--generate-hashes"]
    command += ["--no-header", "--no-annotate", "--python-version", OLDEST_PYTHON]
    done = subprocess.run(  # noqa: S603 - the command is our own
        [*command, *arguments, "-"],
        input="\n".join(wanted),
        text=True,
        capture_output=True,
        check=False,
        cwd=PROJECT,
    )
    if done.returncode:
        sys.exit(f"uv: {done.stderr}")
    return done.stdout


def without_torch(lock: str) -> str:
    """Return a lock without PyTorch and its CUDA libraries."""
    entries = re.split(r"\n(?=\S)", lock.strip())
    return "\n".join(one for one in entries if not UNLOCKED.match(one)) + "\n"


def main() -> None:
    """Write all lock files."""
    pinned = ["--constraint", "constraints.txt"]
    for name, extras in EXTRAS.items():
        given = [f"--extra={extra}" for extra in extras]
        lock = compiled([*pinned, *given, "pyproject.toml"], BUILD)
        (FOLDER / f"{name}.txt").write_text(HEADER + without_torch(lock), encoding="utf-8")
    lock = compiled([*pinned, *CORE_EXTRAS, "pyproject.toml"], [*BUILD, *CORE])
    (FOLDER / "core.txt").write_text(HEADER + lock, encoding="utf-8")
    # The tools that check the others live apart, as their own dependencies may differ.
    lock = compiled(["locks/audit.in"], [])
    (FOLDER / "audit.txt").write_text(HEADER + lock, encoding="utf-8")


if __name__ == "__main__":
    main()
