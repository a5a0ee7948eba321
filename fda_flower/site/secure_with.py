"""Who is in a masked sum: a site's list of sources, and their signatures of the keys of the masks.

A server relays the keys by which sources mask their sums to each other. One that lies could invent the other
sources, and see through the mask. So each source signs its keys with the key of its SuperNode, and a site
answers only if every other source's are signed by the key that the site lists for it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict

from fda_flower.errors import ConfigError, invalid, own_files
from fda_flower.wire import protocol
from fda_flower.wire import secure_sums as wire
from fda_flower.wire.asked.secure_sums import Masked, MaskSums
from fda_flower.wire.identity import FINGERPRINT, Identity
from fda_flower.wire.protocol import to_layers

if TYPE_CHECKING:
    from fda_flower.site.node import Site

SECURE_WITH, SECURE_KEY = "secure-with", "secure-key"
"""Entries of the node configuration."""

ANY = "any"
"""The value of ``secure-with`` for sources that the server names."""

Fingerprints = Mapping[str, str]
"""By domain; empty for `ANY`."""

ENTRIES = f"{Masked.record_name}/entries"
"""The record of an answer's arrays."""


def read_secure_with(value: str | None, secure: bool, own: str | None) -> Fingerprints | None:
    """Return the sources that a site lists, None without the rule.

    `secure` is its ``require-secure``, `own` its domain.

    Raises a `ConfigError` if the list has another form, or a domain or key twice, or too few sources.
    """
    if value is None:
        return None
    if value.strip() == ANY:
        return {}
    if not secure:
        why = "but require-secure is false, so that sums leave open"
        raise invalid(SECURE_WITH, value, "leave one of the two out", why)
    if own is None:
        raise invalid(SECURE_WITH, value, "give the node its domain", "but a node without one cannot sign")
    found = dict[str, str]()
    for text in value.split(","):
        domain, colon, fingerprint = text.strip().partition(":")
        if not (domain and colon and FINGERPRINT.fullmatch(fingerprint)):
            remedy = "give any, or DOMAIN:SHA256:... of each source, as `fda deploy key` prints it"
            raise invalid(SECURE_WITH, text.strip(), remedy)
        if domain in found or fingerprint in found.values():
            raise invalid(
                SECURE_WITH, text.strip(), "give each domain and each key once", "which is there twice"
            )
        found[domain] = fingerprint
    if len({*found, own}) < wire.FEWEST:
        raise invalid(SECURE_WITH, value, f"list {wire.FEWEST - 1} other sources or more")
    return found


def identity_of(site: "Site") -> Identity | None:
    """Return the key with which a node signs, if it has one.

    Raises a `ConfigError` if it cannot be read, or if the node's own domain is listed with another one.
    """
    if site.secure_key is None:
        return None
    with own_files():
        identity, own = Identity.read(site.secure_key), site.domain
    expected = (site.rules.secure_with or {}).get(str(own), identity.fingerprint)
    if expected != identity.fingerprint:
        why = f"where '{own}' has another key than secure-key, {identity.fingerprint}"
        raise invalid(SECURE_WITH, f"{own}:{expected}", "correct one of the two", why)
    return identity


def refuses_sum(site: "Site", listed: Fingerprints) -> str | None:
    """Return why a node that lists sources can take part in no masked sum; None if it can."""
    if not listed or site.gated or site.secure_key is not None:
        return None
    return (
        'it has no key to sign with: give secure-key="...", or fda-supernode its --auth-supernode-private-key'
    )


def refuses_keys(message: Message, run: int, own: str | None, listed: Fingerprints) -> str | None:
    """Return why a site does not mask its sums for the sources whose keys a message has; None if it does."""
    try:
        question = MaskSums.sent_in(message)
    except ConfigError as error:
        return str(error)
    if question.stage != wire.SHARES or not listed:
        return None
    number = number_in(message.content)
    for name, entry in sorted(wire.to_bytes(question.entries or {}).items()):
        if name == own:  # that it is its own, the source itself can tell
            continue
        if name not in listed:
            return f"the server names the source '{name}', which the site does not list"
        try:
            signer = wire.signer_of_keys(entry, run, number, name)
        except ValueError as error:
            return f"'{name}' is not who the site lists: {error}"
        if signer != listed[name]:
            return f"'{name}' is not who the site lists: its keys are signed by {signer}"
    return None


def sign_keys(message: Message, run: int, own: str, identity: Identity, reply: RecordDict) -> None:
    """Add a node's signature to the keys in its answer, if it is one, in place."""
    record = reply.get(ENTRIES)
    if MaskSums.sent_in(message).stage != wire.KEYS or not isinstance(record, ArrayRecord):
        return
    keys = wire.to_bytes(to_layers(record))
    if {wire.SHARING, wire.MASKING} <= keys.keys():
        statement = wire.statement(keys, run, number_in(message.content), own)
        signed = {wire.IDENTITY: identity.public, wire.SIGNATURE: identity.sign(statement)}
        for name, array in wire.from_bytes(signed).items():
            record[name] = Array(np.asarray(array))


def number_in(content: RecordDict) -> int:
    """Return the number of a message's round; 0 if it has none."""
    number = protocol.settings_in(content, protocol.CONFIG).get(protocol.SERVER_ROUND)
    return number if isinstance(number, int) else 0
