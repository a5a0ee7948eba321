"""Certificates and keys of a federation over a network."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fda_flower.errors import ConfigError, invalid
from fda_flower.files import write_atomically
from fda_flower.names.options import read_list

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Hosts by which a SuperLink's own tasks reach it."""
CA_DAYS = 3650
SERVER_DAYS = 365
CLOCKS_DIFFER = datetime.timedelta(hours=1)
"""How far a certificate's validity is backdated, for sites whose clocks are slow."""


@dataclass(frozen=True)
class Certificates:
    """The files of a server. Every site gets the CA's certificate `ca`; the others stay with the server."""

    ca: Path
    ca_key: Path
    server: Path
    server_key: Path


def make_certificates(folder: Path, hosts: Sequence[str]) -> Certificates:
    """Make a server's certificate and key for a year, and the CA that signs it if the folder has none.

    Parameters
    ----------
    folder : Path
        Gets ``ca.crt``, ``ca.key``, ``server.crt`` and ``server.key``. An existing CA is used again, so
        sites that trust it also trust the new server certificate. A new one is valid for ten years.
    hosts : sequence of str
        DNS names and IP addresses by which sites reach the server; loopback is added.

    Raises
    ------
    ConfigError
        If there is no list of hosts, or a file exists already.
    """
    hosts = read_list("hosts", hosts, '["fl.example.org"]')
    if not hosts or not all(hosts):
        raise ConfigError(
            "no host is given: name the DNS names and IP addresses by which sites reach the server",
            thing="host",
        )
    names = [_general_name(host) for host in dict.fromkeys([*hosts, *LOOPBACK])]
    folder = folder.absolute()
    files = Certificates(*(folder / name for name in ("ca.crt", "ca.key", "server.crt", "server.key")))
    _refuse(files.server, files.server_key)
    if files.ca.exists() and files.ca_key.exists():
        ca, ca_key = _load_ca(files)
    else:
        _refuse(files.ca, files.ca_key)
        ca_key = ec.generate_private_key(ec.SECP384R1())
        ca = _sign("fda-flower CA", ca_key, None, ca_key, CA_DAYS, [])
        _write(files.ca_key, _private(ca_key), 0o600)
        _write(files.ca, ca.public_bytes(Encoding.PEM), 0o644)
    key = ec.generate_private_key(ec.SECP384R1())
    server = _sign(hosts[0], key, ca, ca_key, SERVER_DAYS, names)
    _write(files.server_key, _private(key), 0o600)
    _write(files.server, server.public_bytes(Encoding.PEM), 0o644)
    return files


def make_key(folder: Path, name: str) -> tuple[Path, Path]:
    """Make the key pair of a node, as ``ssh-keygen -t ecdsa -b 384`` does.

    Returns the paths of the private key ``NAME``, which stays with the node, and of ``NAME.pub``, which is
    registered. Raises a `ConfigError` if the name is no file name, or a file exists already.
    """
    if not name or name != Path(name).name or name.startswith("."):
        raise invalid("the name of the key", name, "give a plain file name, such as source-1")
    private, public = folder.absolute() / name, folder.absolute() / f"{name}.pub"
    _refuse(private, public)
    key = ec.generate_private_key(ec.SECP384R1())
    text = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    _write(private, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()), 0o600)
    _write(public, text + f" {name}\n".encode(), 0o644)
    return private, public


def _sign(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    ca: x509.Certificate | None,
    ca_key: ec.EllipticCurvePrivateKey,
    days: int,
    hosts: Sequence[x509.GeneralName],
) -> x509.Certificate:
    """Return a certificate signed by a CA; without a CA, the CA's own."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    now = datetime.datetime.now(datetime.UTC)
    is_ca = ca is None
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if ca is None else ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_DIFFER)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=0 if is_ca else None), critical=True)
        .add_extension(_usage(is_ca), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
    )
    if not is_ca:
        builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False).add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
        )
    return builder.sign(ca_key, hashes.SHA384())


def _usage(is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_ca,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise invalid("host", host, "give a DNS name in ASCII or an IP address") from None


def _load_ca(files: Certificates) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        ca = x509.load_pem_x509_certificate(files.ca.read_bytes())
        key = load_pem_private_key(files.ca_key.read_bytes(), None)
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"'{files.ca}' and '{files.ca_key}' cannot be read as a CA ({error}): choose another folder",
            thing=str(files.ca),
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or ca.public_key() != key.public_key():
        raise ConfigError(
            f"'{files.ca_key}' is not the key of '{files.ca}': choose another folder", thing=str(files.ca_key)
        )
    return ca, key


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _refuse(*paths: Path) -> None:
    for path in paths:
        if path.exists():
            raise ConfigError(
                f"'{path}' exists already: move it away, or choose another folder", thing=str(path)
            )


def _write(path: Path, data: bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, data, mode)
