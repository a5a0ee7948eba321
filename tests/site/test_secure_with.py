"""Who is in a masked sum: a site answers sources alone whose keys are signed as it lists, for this round."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from naming import names
from sites import run_sites

from fda_flower import RunConfig, run
from fda_flower.client_app import make_client_app
from fda_flower.deployment import make_key
from fda_flower.errors import ConfigError
from fda_flower.models.exchange import layers_of
from fda_flower.runs.network import make_model
from fda_flower.site.node import Site as Node
from fda_flower.supernode.gate import Gate
from fda_flower.wire import secure_sums as wire
from fda_flower.wire.asked.secure_sums import MaskSums
from fda_flower.wire.identity import Identity
from fda_flower.wire.internals import numbered, task_identity
from fda_flower.wire.protocol import to_layers, to_record

OTHERS = ("source-2", "source-3")
DIGITS: dict[str, Any] = {
    "method": "ridge",
    "model": "logistic",
    "sources": 3,
    "shift": "rotate",
    "device": "cpu",
}
MASKED = RunConfig(**DIGITS, method_options={"secure": True})


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """The SuperNodes' keys, and their identities by domain."""
    folder = tmp_path_factory.mktemp("keys")
    return {name: make_key(folder, name)[0] for name in ("source-1", *OTHERS, "stranger")}


@pytest.fixture(scope="module")
def known(keys):
    return {name: Identity.read(path) for name, path in keys.items()}


def listed(known, *domains):
    return ", ".join(f"{name}:{known[name].fingerprint}" for name in domains)


class Site:
    """The site of source-1, to which a server sends the stages of a masked sum."""

    def __init__(self, keys, known, run_id=7, **node):
        self.node: dict[str, Any] = {"domain": "source-1", "secure-key": str(keys["source-1"])}
        self.node |= {"secure-with": listed(known, *OTHERS), **node}
        self.context = Context(run_id, 2, self.node, RecordDict(), {})
        self.app = make_client_app(MASKED)
        self.model = to_record(layers_of(make_model(MASKED, (1, 8, 8), 10)))

    def message(self, stage, entries=None, number=1):
        question = MaskSums(stage=stage, entries=None if entries is None else wire.from_bytes(entries))
        content: dict[str, Any] = {
            "arrays": self.model,
            "config": ConfigRecord({"server-round": number}),
            **question.records(),
        }
        with task_identity():
            return numbered([Message(RecordDict(content), 2, MaskSums.message_type())])[0]

    def ask(self, *arguments, **named):
        """The entries in its answer, or the reason why there is none."""
        with task_identity():
            reply = self.app(self.message(*arguments, **named), self.context)
        if reply.has_error():
            return reply.error.reason
        return wire.to_bytes(to_layers(reply.content.array_records["answer/entries"]))


def keys_of(signer, domain, run_id=7, number=1):
    """A source's keys as the server passes them on; it knows their secrets if it has made them."""
    entries = {name: wire.public_of(wire.new_secret()) for name in (wire.SHARING, wire.MASKING)}
    if signer is not None:
        signature = signer.sign(wire.statement(entries, run_id, number, domain))
        entries |= {wire.IDENTITY: signer.public, wire.SIGNATURE: signature}
    return wire.joined_keys(entries)


def test_a_site_signs_its_keys_and_shares_its_secrets_with_the_sources_that_it_lists(keys, known):
    site = Site(keys, known)
    own = site.ask(wire.KEYS)
    signer = wire.signer_of_keys(wire.joined_keys(own), 7, 1, "source-1")
    assert signer == known["source-1"].fingerprint
    pairs = {"source-1": wire.joined_keys(own), **{name: keys_of(known[name], name) for name in OTHERS}}
    assert site.ask(wire.SHARES, pairs).keys() == {wire.DIGEST, *(f"{wire.TO}{name}" for name in OTHERS)}


def signed(name="source-2", domain="source-3", run_id=7, number=1):
    return lambda known: {domain: keys_of(known.get(name), domain, run_id, number)}


@pytest.mark.parametrize(
    ("forged", "why"),
    [
        (signed("nobody"), "'source-3' is not who the site lists: its keys are not signed"),
        (signed("stranger"), "its keys are signed by SHA256:"),
        (signed("source-2"), "its keys are signed by SHA256:"),
        (signed("source-3", run_id=8), "not signed by the key that it names"),
        (signed("source-3", number=2), "not signed by the key that it names"),
        (signed("stranger", "stranger"), "names the source 'stranger', which the site does not list"),
        (lambda known: {"source-3": keys_of(known["source-3"], "source-2")}, "not signed by the key"),
        (lambda known: {"source-3": keys_of(known["source-3"], "source-3")[:-3]}, "not signed by the key"),
        (lambda known: {"source-3": b""}, "are not signed"),
        (lambda known: {"source-3": b"\xff" * 900}, "are not signed"),
    ],
)
def test_keys_of_others_are_refused_before_data_are_read(forged, why, keys, known, monkeypatch):
    site = Site(keys, known)
    own = wire.joined_keys(site.ask(wire.KEYS))
    monkeypatch.setattr("fda_flower.client_app.make_client", None)
    reason = site.ask(
        wire.SHARES, {"source-1": own, "source-2": keys_of(known["source-2"], "source-2"), **forged(known)}
    )
    assert why in reason
    assert "secure-with" in reason


def test_without_a_list_no_masked_sums_leave_unless_the_site_trusts_the_server(keys, known):
    site = Site(keys, known)
    del site.node["secure-with"]
    assert "one that lies invents them" in site.ask(wire.KEYS)
    site = Site(keys, known, **{"secure-with": "any"})
    own = wire.joined_keys(site.ask(wire.KEYS))
    invented = {name: keys_of(None, name) for name in OTHERS}
    assert wire.DIGEST in site.ask(wire.SHARES, {"source-1": own, **invented})
    site = Site(keys, known)
    del site.node["secure-key"]
    assert "no key to sign with" in site.ask(wire.KEYS)


def test_the_gate_of_a_supernode_signs_what_an_app_has_not(keys, known):
    site, gate = Site(keys, known), Gate(Site(keys, known).node)
    behind = Site(keys, known, gated=True)
    del behind.node["secure-key"]
    message = site.message(wire.KEYS)
    with task_identity():
        reply = behind.app(message, behind.context)
        assert wire.SIGNATURE not in reply.content.array_records["answer/entries"]
        gate.take(message, site.context)
        left = gate.give(reply)
    entries = wire.to_bytes(to_layers(left.content.array_records["answer/entries"]))
    assert wire.signer_of_keys(wire.joined_keys(entries), 7, 1, "source-1") == known["source-1"].fingerprint


@pytest.mark.parametrize("target", [None, "all"])
def test_sites_that_list_each_other_give_the_same_as_open_sums(target, keys, known, tmp_path):
    domains = [*("source-1", "source-2", "source-3"), "target"]
    config = replace(MASKED, target=target)
    if target == "all":
        domains = config.data.domain_names
        for name in set(domains) - keys.keys():
            keys[name] = make_key(tmp_path, name)[0]
            known[name] = Identity.read(keys[name])
    everyone = listed(known, *(name for name in domains if name in keys))
    nodes = [
        {"domain": name, "state-dir": str(tmp_path / f"state-{name}")}
        | ({"secure-with": everyone, "secure-key": str(keys[name])} if name in keys else {"role": "target"})
        for name in domains
    ]
    model, (record,) = run_sites(config, nodes)
    assert (record["held"], record["dropped"]) == (None, [])
    open_sums = run(**DIGITS, target=target).model
    for name, array in model.items():
        np.testing.assert_allclose(np.float64(array), np.float64(open_sums[name]), atol=1e-4)


FINGERPRINT = f"SHA256:{'a' * 43}"


TWO = f"west:{FINGERPRINT}, south:{FINGERPRINT[:-1]}b"


@pytest.mark.parametrize(
    ("node", "says"),
    [
        ({"secure-with": "west"}, "secure-with is 'west': give any, or DOMAIN:SHA256:"),
        ({"secure-with": f"west:{FINGERPRINT[:-1]}"}, "give any, or DOMAIN:SHA256:"),
        ({"secure-with": f"any, {TWO}"}, "secure-with is 'any': give any, or"),
        ({"secure-with": f"{TWO}, west:{FINGERPRINT[:-1]}c"}, "there twice"),
        ({"secure-with": f"{TWO}, east:{FINGERPRINT}"}, "there twice"),
        ({"secure-with": f"west:{FINGERPRINT}, north:{FINGERPRINT[:-1]}b"}, "list 2 other sources"),
        ({"secure-with": TWO, "require-secure": False}, "leave one of the two out"),
        ({"secure-with": TWO, "domain": ""}, "domain is ''"),
        ({"secure-wiht": "any"}, "did you mean 'secure-with'"),
        ({"secure-with": " "}, "leave it out"),
    ],
)
def test_a_list_of_another_form_is_refused(node, says):
    with pytest.raises(ConfigError, match=re.escape(says)):
        _ = Node.read({"domain": "north", **node}).rules


def test_a_node_whose_key_cannot_be_read_or_is_another_than_listed_does_not_start(keys, known, tmp_path):
    node = {"domain": "source-1", "secure-with": f"{listed(known, *OTHERS)}, source-1:{FINGERPRINT}"}
    assert Gate(node)
    with pytest.raises(ConfigError, match=re.escape(known["source-1"].fingerprint)):
        Gate({**node, "secure-key": str(keys["source-1"])})
    (tmp_path / "none").write_text("no key")
    for path in ("none", "missing"):
        with pytest.raises(ConfigError, check=names("secure-key", str(tmp_path / path), "deploy key")):
            Gate({"domain": "north", "secure-key": str(tmp_path / path)})
