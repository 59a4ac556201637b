"""Look up known vulnerabilities of all locked packages, and say which were not looked up.

pip-audit alone passes over packages that its database does not answer for. Exit status: 0 if all
packages are free of known vulnerabilities, 1 if one is not, 3 if packages could not be looked up.
"""

import json
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
LOCKS = ("dev.txt", "audit.txt")


def audited(lock: Path) -> list[dict[str, object]] | str:
    """Return what the database says about each package of a lock, or why it says nothing."""
    command = [sys.executable, "-m", "pip_audit", "--progress-spinner=off", "--format=json"]
    command += ["--disable-pip", "--no-deps", "--require-hashes", "--timeout=15", "-r", str(lock)]
    done = subprocess.run(  # noqa: S603 - the command is our own
        command, text=True, capture_output=True, check=False
    )
    try:
        found: list[dict[str, object]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        return done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no answer"
    return found


def main() -> int:
    """Audit all locks."""
    status = 0
    for name in LOCKS:
        found = audited(FOLDER / name)
        if isinstance(found, str):
            print(f"locks/{name}: NOT AUDITED, the database cannot be reached ({found[:200]})")
            status = status or 3
            continue
        skipped = [one for one in found if "skip_reason" in one]
        weak = [one for one in found if one.get("vulns")]
        for one in weak:
            for bug in one["vulns"]:  # type: ignore[attr-defined]
                print(
                    f"{one['name']} {one['version']}: {bug['id']}, fixed in {bug['fix_versions']}"
                )
        looked_up = len(found) - len(skipped)
        print(f"locks/{name}: {looked_up} of {len(found)} packages audited, {len(weak)} vulnerable")
        if skipped:
            print(f"locks/{name}: NOT AUDITED: {len(skipped)} packages, unknown to the database")
            status = status or 3
        if weak:
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
