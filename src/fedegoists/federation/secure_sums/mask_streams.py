"""Masks: streams of ring elements from secrets, and secrets from key agreement.

X25519, HKDF with SHA-256 and AES-256 in counter mode, all from ``cryptography``. Every stream has a
key of its own, which is used once.
"""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedegoists.federation.secure_sums.fixed_point import Ring

SECRET = 32
"""Bytes of a key, a seed or a secret."""


def shared_secrets(private: bytes, publics: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the secrets of one party with some others by X25519.

    Each of them gets the same from its private key and this party's public one.

    Raises
    ------
    ValueError
        If a public key is one with which there is no secret.
    """
    own = X25519PrivateKey.from_private_bytes(private)  # takes longer than an exchange
    return {
        name: own.exchange(X25519PublicKey.from_public_bytes(public))
        for name, public in publics.items()
    }


def public_key(private: bytes) -> bytes:
    """Return the public key that belongs to a private one."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def derived(secret: bytes, agreement: bytes, purpose: str) -> bytes:
    """Return a secret for one purpose under one agreement."""
    info = b"fedegoists secure sums: " + purpose.encode()
    return HKDF(SHA256(), SECRET, salt=agreement, info=info).derive(secret)


def stream(key: bytes, length: int) -> Ring:
    """Return pseudorandom ring elements.

    Parameters
    ----------
    key : bytes
        A secret that is used for this stream alone.
    """
    # The counter may start at zero, since the key is used once.
    encryptor = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
    drawn = np.empty(length, dtype="<u4")
    encryptor.update_into(_zeros(4 * length), memoryview(drawn).cast("B"))  # type: ignore[arg-type]
    return drawn.astype(np.uint32, copy=False)


@lru_cache(maxsize=1)
def _zeros(length: int) -> bytes:
    """Return what a stream is the encryption of; all streams of a sum are as long."""
    return bytes(length)
