"""Requests to a coordinator, and what goes wrong with them."""

import json
import os
import ssl
from collections.abc import Mapping
from http.client import HTTPException
from ipaddress import ip_address
from typing import IO, NoReturn, cast
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from fedegoists.errors import FedEgoistsError, SettingsError
from fedegoists.version import __version__

FilePath = str | os.PathLike[str]

SECONDS_TO_ANSWER = 120.0
"""Longer than the longest time limit of a formation."""


class ClientError(FedEgoistsError):
    """A request that the coordinator refused, or that did not reach it.

    Attributes
    ----------
    status : int or None
        The HTTP status; None if no answer came.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirect: it would send the token to wherever the redirect points."""

    def redirect_request(
        self,
        req: Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: object,
        newurl: str,
    ) -> None:
        """Return None: the redirect is then an error."""


class Connection:
    """Authenticated requests to one coordinator.

    Parameters
    ----------
    url : str
        Address of the coordinator, such as ``https://coordinator.example.org``.
    token : str
        Token, as accepting an invitation gives it.
    tls : ssl.SSLContext, optional
        For a certificate authority of your own, or a client certificate.
    unencrypted : bool
        Whether to send the token over HTTP to another machine, where others may read it.

    Raises
    ------
    SettingsError
        If the address is not one of a web server, or HTTPS is missing.
    """

    def __init__(
        self,
        url: str,
        token: str = "",
        *,
        tls: ssl.SSLContext | None = None,
        unencrypted: bool = False,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SettingsError(f"{url!r} is not an address such as https://coordinator.example")
        if parts.scheme == "http" and not unencrypted and not _is_local(parts.hostname):
            raise SettingsError(
                f"{parts.hostname} would be sent secrets unencrypted; use https://, or give "
                "unencrypted=True in a network that you trust"
            )
        self.url = f"{parts.scheme}://{parts.netloc}"
        self.token = token
        self._opener = build_opener(_NoRedirects(), HTTPSHandler(context=tls))

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        query: Mapping[str, str] | None = None,
    ) -> bytes:
        """Send a request and return its answer.

        Raises
        ------
        ClientError
            If the coordinator refuses it or does not answer.
        """
        address = self.url + path + (f"?{urlencode(query)}" if query else "")
        content = None if body is None else json.dumps(body).encode()
        request = Request(address, content, method=method)  # noqa: S310, the scheme was checked
        request.add_header("User-Agent", f"fedegoists/{__version__}")
        if content is not None:
            request.add_header("Content-Type", "application/json")
        if self.token:
            request.add_unredirected_header("Authorization", f"Bearer {self.token}")
        try:
            with self._opener.open(request, timeout=SECONDS_TO_ANSWER) as answer:
                return cast("bytes", answer.read())
        except HTTPError as error:
            with error:
                _refused(error.code, error.read())
        except (URLError, HTTPException, OSError) as error:
            reason = getattr(error, "reason", None) or error
            raise ClientError(f"{self.url} does not answer: {reason}") from None

    def read(self, method: str, path: str, body: object = None, **query: str) -> object:
        """Send a request and return its answer, which is JSON."""
        content = self.ask(method, path, body, query)
        return json.loads(content) if content else None


def _is_local(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _refused(status: int, content: bytes) -> NoReturn:
    try:
        detail = json.loads(content)["detail"]
    except (ValueError, KeyError, TypeError):
        raise ClientError(f"this is not a coordinator: it answered {status}", status) from None
    if not isinstance(detail, str):  # what is wrong with each field
        detail = "; ".join(f"{'.'.join(map(str, one['loc'][1:]))}: {one['msg']}" for one in detail)
    raise ClientError(detail, status)


def accept_invitation(
    url: str,
    invitation: str,
    *,
    tls: ssl.SSLContext | None = None,
    unencrypted: bool = False,
) -> str:
    """Exchange an invitation, once, for a token; keep it like a password.

    Parameters
    ----------
    invitation : str
        The invitation, or the whole link that contains it.
    """
    connection = Connection(url, tls=tls, unencrypted=unencrypted)
    secret = invitation.rpartition("#")[2]
    answer = connection.read("POST", "/api/invitations/accept", {"invitation": secret})
    return cast("dict[str, str]", answer)["token"]
