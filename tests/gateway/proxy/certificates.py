"""A throw-away authority, made for one test run."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["Authority"]

_DAY = dt.timedelta(days=1)


class Authority:
    """Issues certificates; `file` is its own, in PEM."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "throw-away authority")])
        self._certificate = self._sign(self._name, self._key, x509.BasicConstraints(ca=True, path_length=0), [])
        self.file = folder / "authority.pem"
        self.file.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def serve(self, *names: str, days: int = 1) -> ssl.SSLContext:
        """Return a server context with a certificate for `names` (hosts or addresses), valid until `days` from now."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.issue(*names, days=days))
        return context

    def issue(self, *names: str, days: int = 1) -> Path:
        """Return a PEM file with a key and its certificate for `names`."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "throw-away server")])
        certificate = self._sign(subject, key, x509.BasicConstraints(ca=False, path_length=None), list(names), days)
        path = self._folder / f"server-{certificate.serial_number}.pem"
        pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        path.write_bytes(
            key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain) + certificate.public_bytes(pem)
        )
        return path

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        constraints: x509.BasicConstraints,
        names: list[str],
        days: int = 1,
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 30 * _DAY)
            .not_valid_after(now + days * _DAY)
            .add_extension(constraints, critical=True)
        )
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general(name) for name in names]), critical=False
            )
        return builder.sign(self._key, hashes.SHA256())


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
