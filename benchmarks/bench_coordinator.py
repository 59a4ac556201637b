"""How fast the coordinator answers with a hundred members and ten thousand benefits.

    python -m benchmarks.bench_coordinator

Starts `fedegoists serve`, fills a consortium, and measures over loopback: what-if with ten managers
at once, each asking again as soon as it is answered, and each with a pause of a second as somebody
who looks at the answer has it; and, where Chromium is installed, how long the overview takes until
it is drawn. Beside it stand what the service computed for an answer, and the machine's load just
before (which counts processes that want a core, whosever they are): on a busy machine the former
says more than the time.
"""

import itertools
import os
import random
import shutil
import statistics
import tempfile
import threading
import time
from pathlib import Path

import httpx2 as httpx
import psutil

from benchmarks.measure import random_consortium, report
from tests.coordinator.served import bearer, invite_and_join, manager_token, running

MEMBERS = 100
COMPETITION = 0.1
MANAGERS = 10
SECONDS = 15.0


def filled(client: httpx.Client, manager: str) -> tuple[int, list[str]]:
    benefit, competition = random_consortium(MEMBERS, 1.01, COMPETITION, 0)
    head = bearer(manager)
    consortium = client.post("/api/consortia", json={"name": "Large"}, headers=head).json()["id"]
    tokens = invite_and_join(client, manager, consortium, benefit.participants)
    for name, token in tokens.items():
        rivals = [b for a, b in competition.pairs if a == name]
        if rivals:
            body = {"competitors": rivals}
            assert client.put("/api/me/reports", json=body, headers=bearer(token)).is_success
    api = f"/api/consortia/{consortium}"
    edges = list(benefit.edges())
    assert client.put(f"{api}/benefit", json={"edges": edges}, headers=head).is_success
    assert client.post(f"{api}/reports/close", headers=head).is_success
    made = client.post(f"{api}/formations", json={"time_limit": 2}, headers=head, timeout=300)
    assert made.is_success, made.text
    return consortium, list(benefit.participants)


def what_if(url: str, token: str, consortium: int, names: list[str], pause: float) -> list[float]:
    """Return the seconds that each of many questions took."""
    times: list[float] = []
    end = time.monotonic() + SECONDS
    with httpx.Client(base_url=url, timeout=60) as setup:
        address = f"/api/consortia/{consortium}/graphs"
        pairs = setup.get(address, headers=bearer(token)).json()["competition"]
    rivals = {frozenset(pair) for pair in pairs}

    def ask(seed: int) -> None:
        rng = random.Random(seed)
        with httpx.Client(base_url=url, timeout=60, headers=bearer(token)) as client:
            while time.monotonic() < end:
                pair = rng.sample(names, 2)
                body = {"remove" if frozenset(pair) in rivals else "add": [pair]}
                began = time.perf_counter()
                answer = client.post(f"/api/consortia/{consortium}/formations/1/what-if", json=body)
                times.append(time.perf_counter() - began)
                assert answer.is_success, answer.text
                time.sleep(pause * rng.uniform(0.5, 1.5))

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(MANAGERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times


def overview(url: str, token: str, consortium: int) -> list[tuple[float, float]]:
    """Return, for each of some loads, the milliseconds until drawn, and those of the picture."""
    from playwright.sync_api import sync_playwright

    found = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 900}, base_url=url)
        page.goto("/login")
        page.get_by_label("Token or invitation").fill(token)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url("**/consortia")
        for _ in range(5):
            began = time.perf_counter()
            page.goto(f"/consortia/{consortium}")
            page.locator("#workbench[data-ready]").wait_for()
            whole = (time.perf_counter() - began) * 1e3
            drawn = page.locator("#workbench").get_attribute("data-ready")
            found.append((whole, float(drawn or "nan")))
        browser.close()
    return found


def computed(process: psutil.Process) -> float:
    """Return the seconds of a core that a process has used."""
    times = process.cpu_times()
    return float(times.user + times.system)


def percentile(times: list[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(share * len(times)))]


def main() -> None:
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = folder / "log"
        limit = ("--requests-per-minute", "1000000")
        with running(folder / "data", *limit, log=log) as process:
            token = manager_token(process)
            with httpx.Client(base_url=process.url, timeout=120) as client:
                consortium, names = filled(client, token)
            service = psutil.Process(process.process.pid)
            for words, pause in (("a second's pause", 1.0), ("no pause", 0.0)):
                load, before = os.getloadavg()[0], computed(service)
                times = what_if(process.url, token, consortium, names, pause)
                rows.append(
                    (
                        f"what-if, {MANAGERS} at once, {words}",
                        len(times),
                        f"{statistics.median(times) * 1e3:.0f}",
                        f"{percentile(times, 0.95) * 1e3:.0f}",
                        f"{len(times) / SECONDS:.0f}",
                        f"{(computed(service) - before) / len(times) * 1e3:.1f}",
                        f"{load:.1f}",
                    )
                )
            if shutil.which("chromium"):
                load = os.getloadavg()[0]
                for what, times in zip(
                    ("overview until drawn", "of which its picture"),
                    itertools.starmap(
                        lambda *column: list(column),
                        zip(*overview(process.url, token, consortium), strict=True),
                    ),
                    strict=True,
                ):
                    middle, most = statistics.median(times), max(times)
                    rows.append(
                        (what, len(times), f"{middle:.0f}", f"{most:.0f}", "", "", f"{load:.1f}")
                    )
    report(
        "coordinator",
        f"{MEMBERS} members, {MEMBERS * (MEMBERS - 1):,} benefits",
        (
            "what",
            "times",
            "median ms",
            "95th percentile ms",
            "a second",
            "service's processor ms",
            "load before",
        ),
        rows,
    )


if __name__ == "__main__":
    main()
