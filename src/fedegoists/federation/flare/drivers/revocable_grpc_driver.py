"""FLARE's gRPC server, with certificates that can be revoked.

TLS checks a certificate's signature and dates when a connection begins. This driver also refuses
certificates on the consortium's revocation list, and ends connections whose certificate is revoked
or expires while they are open.
"""

import datetime
import threading
from pathlib import Path
from typing import Any

from cryptography import x509
from nvflare.fuel.f3.connection import Connection
from nvflare.fuel.f3.drivers.driver import ConnectorInfo
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.drivers.grpc_driver import GrpcDriver

from fedegoists.federation.flare.kit_identity import (
    REVOKED_FILE,
    IdentityError,
    Trust,
    common_name,
    read_trust,
)

REVOCABLE_GRPC = "revocable"
"""The scheme of the server; silos connect with FLARE's own ``grpc``."""

LOOK_AGAIN = 1.0
"""Seconds between two looks at the revocation list."""


class RevocableGrpcDriver(GrpcDriver):  # type: ignore[misc]
    """FLARE's server with a look at the certificate of every connection."""

    def __init__(self) -> None:
        super().__init__()
        self._certificates: dict[str, x509.Certificate] = {}
        self._trust: Trust | None = None
        self._kit = Path()
        self._changed = 0

    @staticmethod
    def supported_transports() -> list[str]:
        """Return the schemes of this driver."""
        return [REVOCABLE_GRPC]

    def listen(self, connector: ConnectorInfo) -> None:
        """Serve until `shutdown`."""
        self._kit = Path(connector.params[DriverParams.CA_CERT.value]).resolve().parents[1]
        self._read()
        threading.Thread(target=self._watch, daemon=True).start()
        super().listen(connector)

    def add_connection(self, conn: Connection) -> None:
        """Accept a connection if its certificate is to be believed.

        Raises
        ------
        IdentityError
            If it is not; FLARE then ends the connection.
        """
        # Without a context it is a connection that this side opened: not at a server.
        texts = conn.context.auth_context().get("x509_pem_cert", ())
        if not texts:
            raise IdentityError("a connection without a certificate")
        certificate = x509.load_pem_x509_certificate(texts[0])
        self._check(certificate)
        self._certificates[conn.name] = certificate
        super().add_connection(conn)

    def close_connection(self, conn: Connection) -> None:
        """Forget a connection that has ended."""
        self._certificates.pop(conn.name, None)
        super().close_connection(conn)

    def _check(self, certificate: x509.Certificate) -> None:
        assert self._trust is not None
        name = common_name(certificate)
        if certificate.serial_number in self._trust.revoked:
            raise IdentityError(f"refused {name}: its certificate is revoked")
        if certificate.not_valid_after_utc < datetime.datetime.now(datetime.UTC):
            raise IdentityError(f"refused {name}: its certificate has expired")

    def _read(self) -> None:
        """Read the revocation list if it has changed."""
        changed = (self._kit / REVOKED_FILE).stat().st_mtime_ns
        if changed != self._changed:
            self._trust = read_trust(self._kit)
            self._changed = changed

    def _watch(self) -> None:
        pause = threading.Event()
        while not self.closing:
            pause.wait(LOOK_AGAIN)
            try:
                self._read()
            except (OSError, IdentityError) as error:
                self.logger.error(f"the revocation list cannot be read: {error}")
            for name, certificate in list(self._certificates.items()):
                try:
                    self._check(certificate)
                except IdentityError as error:
                    self.logger.warning(f"a connection is ended: {error}")
                    self._end(name)

    def _end(self, name: str) -> None:
        connection: Any = self.connections.get(name)
        self._certificates.pop(name, None)
        if connection is not None:
            connection.close()
