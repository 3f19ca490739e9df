"""A certificate authority for one box: the box trusts it, and only its proxy has the key.

Its certificates end the TLS of a command's connection at the proxy. Imported by calls with secrets alone.
"""

from __future__ import annotations

import os
import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dragoman: secrets of one command")])
_OTHER_USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("encipher_only", "decipher_only"),
)
_EARLIER = timedelta(days=1)  # the clocks of a machine's programs differ by less
_KEPT = 100  # hosts
_VALID = timedelta(days=365)  # what some programs accept at most, and longer than a job


def draw_authority() -> tuple[bytes, bytes]:
    """Return a new certificate and its private key, both in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    signs = {"key_cert_sign": True, "crl_sign": True}
    certificate = (
        _builder(_NAME, key.public_key(), key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(**dict.fromkeys(_OTHER_USAGES, False) | signs), critical=True)
        .sign(key, SHA256())
    )
    return certificate.public_bytes(Encoding.PEM), _pem(key)


class Certificates:
    """Certificates that the proxy shows as those of hosts, signed by the box's authority."""

    def __init__(self, authority_key: bytes) -> None:
        key = load_pem_private_key(authority_key, password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self._authority = key
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._contexts: dict[str, ssl.SSLContext] = {}

    def context(self, host: str) -> ssl.SSLContext:
        """Return the settings with which a connection is answered as `host`."""
        if host not in self._contexts:
            if len(self._contexts) == _KEPT:  # a pattern may name hosts without end, and no limit holds the proxy
                self._contexts.clear()
            self._contexts[host] = _serving(self._issued(host), _pem(self._key))
        return self._contexts[host]

    def _issued(self, host: str) -> bytes:
        name: x509.GeneralName = x509.DNSName(host)
        with suppress(ValueError):
            name = x509.IPAddress(ip_address(host))
        certificate = (
            _builder(x509.Name([]), self._key.public_key(), self._authority.public_key())
            .add_extension(x509.SubjectAlternativeName([name]), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .sign(self._authority, SHA256())
        )
        return certificate.public_bytes(Encoding.PEM)


def _builder(
    subject: x509.Name, key: ec.EllipticCurvePublicKey, issuer: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    """A certificate in which both keys are identified, as strict programs want it (RFC 5280, 4.2.1.1)."""
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(_NAME)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), critical=False)
    )


def _serving(certificate: bytes, key: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    file = os.memfd_create("certificate")  # the standard library takes a file only, and this one has no name
    try:
        os.write(file, certificate + key)
        context.load_cert_chain(f"/proc/self/fd/{file}")
    finally:
        os.close(file)
    return context


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
