"""Certificates and keys: what they hold, and that none is ever overwritten."""

import datetime
import ipaddress
import stat

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError
from naming import names

from fda_flower.deployment.certificates import make_certificates, make_key
from fda_flower.errors import ConfigError

HOSTS = ["fl.example.org", "192.0.2.7"]
LOOPBACK = ["localhost", "127.0.0.1", "::1"]


def load(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


def verify(ca, server, name):
    PolicyBuilder().store(Store([load(ca)])).build_server_verifier(name).verify(load(server), [])


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def files_below(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("certificates") / "new", HOSTS)


@pytest.mark.parametrize("host", HOSTS + LOOPBACK)
def test_the_server_is_trusted_by_the_ca_under_each_of_its_hosts_and_to_itself(made, host):
    try:
        name = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        name = x509.DNSName(host)  # type: ignore[assignment]
    verify(made.ca, made.server, name)


def test_a_host_that_is_named_twice_is_in_the_certificate_once(tmp_path):
    server = load(make_certificates(tmp_path, ["localhost", "localhost"]).server)
    hosts = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(host.value) for host in hosts] == LOOPBACK


def test_the_server_is_not_trusted_under_another_host_or_by_another_ca(made, tmp_path):
    other = make_certificates(tmp_path, HOSTS)
    for ca, host in ((made.ca, "example.org"), (other.ca, "localhost")):
        with pytest.raises(VerificationError):
            verify(ca, made.server, x509.DNSName(host))


def test_only_the_owner_reads_private_keys_and_the_certificate_is_valid_for_a_year(made):
    left = load(made.server).not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(days=364) < left <= datetime.timedelta(days=365)
    assert {path.name: mode(path) for path in made.ca.parent.iterdir()} == {
        "ca.crt": 0o644,
        "ca.key": 0o600,
        "server.crt": 0o644,
        "server.key": 0o600,
    }


def test_a_new_server_certificate_is_signed_by_the_ca_that_is_there(tmp_path):
    first = make_certificates(tmp_path, ["old.example.org"])
    ca = first.ca.read_bytes()
    first.server.unlink()
    first.server_key.unlink()
    second = make_certificates(tmp_path, ["new.example.org"])
    assert second.ca.read_bytes() == ca
    verify(second.ca, second.server, x509.DNSName("new.example.org"))


@pytest.mark.parametrize(
    ("removed", "damaged", "named"),
    [
        ([], {}, "server.crt"),
        (["ca.key", "server.crt", "server.key"], {}, "ca.crt"),
        (["server.crt", "server.key"], {"ca.crt": b"nothing"}, "ca.crt"),
        (["server.crt", "server.key"], {"ca.key": "the key of another CA"}, "ca.key"),
    ],
    ids=["nothing is missing", "half a CA", "no certificate", "the key of another CA"],
)
def test_nothing_is_overwritten_and_no_half_or_damaged_ca_is_used(made, tmp_path, removed, damaged, named):
    make_certificates(tmp_path, HOSTS)
    for name in removed:
        (tmp_path / name).unlink()
    for name, data in damaged.items():
        (tmp_path / name).write_bytes(data if isinstance(data, bytes) else made.ca_key.read_bytes())
    before = files_below(tmp_path)
    with pytest.raises(ConfigError, check=names(str(tmp_path / named))):
        make_certificates(tmp_path, HOSTS)
    assert files_below(tmp_path) == before


@pytest.mark.parametrize(
    ("hosts", "error"),
    [
        ([], names("host")),
        ([""], names("host")),
        (["käse"], names("host", "käse", "ASCII")),
        ("fl.example.org", names("hosts", "fl.example.org")),
    ],
)
def test_what_cannot_work_is_refused_before_a_file_is_written(tmp_path, hosts, error):
    with pytest.raises(ConfigError, check=error):
        make_certificates(tmp_path, hosts)
    assert list(tmp_path.iterdir()) == []


def test_a_key_pair_is_one_that_flower_takes(tmp_path):
    private, public = make_key(tmp_path / "keys", "source-1")
    key = load_ssh_private_key(private.read_bytes(), None)
    assert isinstance(key.curve, ec.SECP384R1)
    assert load_ssh_public_key(public.read_bytes()) == key.public_key()
    assert public.read_text(encoding="utf-8").startswith("ecdsa-sha2-nistp384 ")
    assert (private.name, public.name) == ("source-1", "source-1.pub")
    assert (mode(private), mode(public)) == (0o600, 0o644)


@pytest.mark.parametrize("left", ["source-1", "source-1.pub"])
def test_no_half_of_a_key_pair_is_overwritten(tmp_path, left):
    make_key(tmp_path, "source-1")
    for path in list(tmp_path.iterdir()):
        if path.name != left:
            path.unlink()
    before = files_below(tmp_path)
    with pytest.raises(ConfigError, check=names(str(tmp_path / left))):
        make_key(tmp_path, "source-1")
    assert files_below(tmp_path) == before


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden"])
def test_the_name_of_a_key_is_a_plain_file_name(tmp_path, name):
    with pytest.raises(ConfigError, check=names("the name of the key")):
        make_key(tmp_path, name)
    assert list(tmp_path.iterdir()) == []
