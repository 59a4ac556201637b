"""Fetching over the network, from a server of the test's own."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from fedegoists.learning.data import DataError
from fedegoists.learning.datasets import download as module
from fedegoists.learning.datasets.download import download

CONTENT = b"images" * 1000


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path != "/file":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_right_file_is_written(address: str, tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    download(f"{address}/file", hashlib.sha256(CONTENT).hexdigest(), path)
    assert path.read_bytes() == CONTENT


def test_another_file_is_not_written(address: str, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"6,000 bytes with the SHA-256 sum \w{64}, not 00; nothing"
    ):
        download(f"{address}/file", "00", tmp_path / "file")
    assert not list(tmp_path.iterdir())


def test_what_the_server_does_not_have(address: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"/none cannot be downloaded \(Not Found\); without"):
        download(f"{address}/none", "00", tmp_path / "file")


def test_offline(tmp_path: Path) -> None:
    # Nobody listens on the discard port of this machine.
    with pytest.raises(
        DataError, match=r"cannot be downloaded \(.*refused\); .* put it at .*cifar\.tar\.gz$"
    ):
        download("http://127.0.0.1:9/cifar", "00", tmp_path / "cifar.tar.gz")


def test_too_large(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST", 100)
    with pytest.raises(DataError, match=r"it is larger than 100 bytes"):
        download(f"{address}/file", "00", tmp_path / "file")
