"""Secrets stay where they belong, and whatever goes wrong is an error with its reason."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fedegoists.client import ClientError, Connection, ManagerClient
from fedegoists.errors import FedEgoistsError, SettingsError


@contextmanager
def server(answer):
    """A web server that is no coordinator; `answer` is called with each request's handler."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            answer(self)

        def log_message(self, *_):
            """Say nothing."""

    served = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=served.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{served.server_port}"
    served.shutdown()
    thread.join()
    served.server_close()


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://127.0.0.1", "127.0.0.1:8000", "", "http://"]
)
def test_only_addresses_of_web_servers_are_accepted(url):
    with pytest.raises(SettingsError, match="not an address"):
        Connection(url)


@pytest.mark.parametrize("host", ["coordinator.example", "10.0.0.1", "127.0.0.1.example"])
def test_no_secret_is_sent_unencrypted_to_another_machine(host):
    with pytest.raises(SettingsError, match="unencrypted"):
        Connection(f"http://{host}", "fe-token-x")
    Connection(f"https://{host}", "fe-token-x")
    Connection(f"http://{host}", "fe-token-x", unencrypted=True)


def test_a_redirect_is_not_followed():
    asked = []

    def elsewhere(handler):
        asked.append(handler.path)
        handler.send_response(302)
        handler.send_header("Location", "/other")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    with server(elsewhere) as url, pytest.raises(ClientError, match="not a coordinator") as error:
        ManagerClient(url, "fe-token-x").consortia()
    assert error.value.status == 302
    assert asked == ["/api/consortia"]


def test_a_server_that_does_not_answer_is_named():
    with server(lambda handler: None) as url:
        pass  # it is gone now
    with pytest.raises(ClientError, match="does not answer") as error:
        ManagerClient(url, "fe-token-x").consortia()
    assert error.value.status is None
    assert isinstance(error.value, FedEgoistsError)
    assert "fe-token-x" not in str(error.value)


def test_an_answer_that_breaks_off_is_an_error():
    def broken(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", "100")
        handler.end_headers()
        handler.wfile.write(b"[")

    with server(broken) as url, pytest.raises(ClientError, match="does not answer"):
        ManagerClient(url, "fe-token-x").consortia()
