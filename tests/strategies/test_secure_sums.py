"""Secure sums, server and sources together: every loss, every forged reply, and what a server may ask."""

from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Message, RecordDict
from naming import names

from fda_flower.clients.private_state import PrivateState
from fda_flower.clients.secure_sums import SecureSums
from fda_flower.errors import ConfigError, RunError
from fda_flower.strategies.base import BadReplyError, Node, Round
from fda_flower.strategies.secure_sums import SecureSum
from fda_flower.wire import secure_sums as wire
from fda_flower.wire.asked.secure_sums import Masked, MaskSums
from fda_flower.wire.identity import Identity
from fda_flower.wire.internals import numbered
from fda_flower.wire.protocol import TrainReply, TrainRequest, read_request, to_layers, to_record
from fda_flower.wire.secure_sums import CONFIRM, KEYS, MASKED, SHARES, STAGES, UNMASK, encode

pytestmark = pytest.mark.usefixtures("bare_replies")
SIZE = 7
SIX, NINE = "abcdef", "abcdefghi"
"""Of six sources five must stay, of nine seven, and of three all."""


class Federation:
    """Sources with numbers of their own; some are lost at a stage, some change what they send."""

    def __init__(self, names=SIX, lost=None, forged=None, seed=0, size=SIZE):
        self.rng: Any = np.random.default_rng(seed)
        self.nodes = [Node(i + 2, name, False) for i, name in enumerate(names)]
        self.names = {node.id: node.domain for node in self.nodes}
        self.numbers = {name: self.rng.normal(0, 1e4, size) for name in names}
        self.states = {name: PrivateState(RecordDict()) for name in names}
        self.lost, self.forged = lost or {}, forged or {}
        self.replied: dict[tuple[str, str], dict] = {}
        self.number, self.size = 0, size

    def answer(self, message):
        request = read_request(message.content, MaskSums)
        name, question = self.names[message.metadata.dst_node_id], MaskSums.read(message.content)
        numbers = request.config["server-round"], lambda: encode(self.numbers[name])
        record = SecureSums(self.states[name]).answer(question, *numbers).entries
        record = self.forged.get((name, question.stage), lambda each: each)(dict(record))
        self.replied[name, question.stage] = record
        reply = TrainReply(to_layers(request.arrays), 10, answer=Masked(entries=record))
        return Message(reply.content(request.arrays), reply_to=message)

    def send(self, messages):
        """Answer in any order; a source that refuses is as one that is lost."""
        replies = []
        for message in numbered(messages):
            stage = MaskSums.read(message.content).stage
            if self.lost.get(self.names[message.metadata.dst_node_id]) != stage:
                replies.append(self.answer(message))
        return [replies[i] for i in self.rng.permutation(len(replies))]

    def run(self):
        """The sum of one more round, and who is in it."""
        self.number += 1
        arrays = to_record({"w": np.zeros(1, np.float32)})
        record: dict[str, Any] = {"sources": {}, "dropped": [], "bytes-received": 0}
        config = {"server-round": self.number}
        self.round = Round(self.number, False, self.nodes, arrays, config, record, self.send)
        request = TrainRequest(arrays, config, question=MaskSums(stage=KEYS))
        _, sources = self.round.exchange(dict.fromkeys(self.nodes, request))
        total, updates = SecureSum(self.round, self.size).total(sources)
        assert list(record["sources"]) == sorted(updates)
        return total, "".join(updates)

    def open_sum(self, names):
        return np.sum([encode(self.numbers[name]) for name in names], axis=0, dtype=np.uint64)

    @property
    def dropped(self):
        return {each["domain"]: each["reason"] for each in self.round.record["dropped"]}


def check(federation, names):
    total, active = federation.run()
    assert active == names
    np.testing.assert_array_equal(total, federation.open_sum(names))


@pytest.mark.parametrize("stage", [None, *STAGES])
def test_any_one_source_may_be_lost_at_any_stage(stage):
    for name in SIX:
        left = SIX if stage in (None, CONFIRM, UNMASK) else SIX.replace(name, "")
        check(Federation(lost={name: stage}), left)


def test_three_sources_lose_none():
    check(Federation("abc"), "abc")


def test_secrets_may_be_kept_in_files(tmp_path):
    federation = Federation(lost={"b": MASKED})
    federation.states = {name: PrivateState(RecordDict(), tmp_path / name) for name in SIX}
    check(federation, "acdef")
    check(federation, "acdef")
    files = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    revealed = {f"{name}/secure-sums-revealed.safetensors" for name in "acdef"}
    assert files == {f"{name}/secure-sums.safetensors" for name in SIX} | revealed


def losses(runs):
    """Random sources lost at random stages, as many as may be."""
    rng = np.random.default_rng(0)
    for seed in range(runs):
        domains = NINE[: rng.integers(3, 10)]
        count = rng.integers(0, len(domains) - wire.threshold(len(domains)) + 1)
        yield (
            seed,
            domains,
            {str(name): str(rng.choice(STAGES)) for name in rng.permutation([*domains])[:count]},
        )


@pytest.mark.parametrize("runs", [20, pytest.param(1000, marks=pytest.mark.slow)])
def test_the_sum_is_the_open_one_to_the_bit_whoever_is_lost(runs):
    for seed, domains, lost in losses(runs):
        left = "".join(name for name in domains if lost.get(name) in (None, CONFIRM, UNMASK))
        check(Federation(domains, lost, seed=seed), left)


@pytest.mark.parametrize(
    ("names", "lost", "stage"),
    [("abc", "a", KEYS), *((SIX, "bd", stage) for stage in STAGES[1:]), *(("abc", "b", s) for s in STAGES)],
)
def test_with_too_many_sources_lost_the_round_is_held(names, lost, stage):
    left = f"{len(names) - len(lost)} of {len(names)} sources have usable '{stage}'"
    with pytest.raises(BadReplyError, match=left):
        Federation(names, dict.fromkeys(lost, stage)).run()


def test_masks_are_new_in_each_round_and_look_random():
    federation = Federation(size=500)
    seen = []
    for _ in range(3):
        federation.run()
        seen.append(federation.replied["a", MASKED]["sums"])
    words = np.concatenate(seen)
    assert len(np.unique(words)) == words.size
    bits = np.unpackbits(words.view(np.uint8)).reshape(-1, 64)
    deviations = (bits.mean(axis=0) - 0.5) / (0.5 / np.sqrt(len(bits)))
    assert np.abs(deviations).max() < 4.5, "each bit is 1 as often as 0"
    bytes_ = np.bincount(words.view(np.uint8), minlength=256)
    expected = words.size * 8 / 256
    chi = float(np.square(bytes_ - expected).sum() / expected)
    assert abs(chi - 255) < 5 * np.sqrt(2 * 255)


def test_what_the_server_gets_before_the_last_stage_does_not_sum_up():
    federation = Federation()
    federation.run()
    masked = sum(federation.replied[name, MASKED]["sums"] for name in SIX)
    assert (masked != federation.open_sum(SIX)).all(), "each has a mask of its own, too"


def changed(name, value):
    return lambda record: {**record, name: np.asarray(value)}


def without(name):
    return lambda record: {key: value for key, value in record.items() if key != name}


POINT = np.frombuffer(b"\x04" + bytes(64), np.uint8)
NONSENSE = np.zeros(wire.SHARE, np.uint8)


SIGNER = Identity(ec.generate_private_key(ec.SECP384R1()))


def signed(domain="b", number=1, run=0, size=None):
    """Sign the keys, as a site does; the size of the signature may be another."""

    def change(record):
        statement = wire.statement(wire.to_bytes(record), run, number, domain)
        signature = SIGNER.sign(statement) if size is None else bytes(size)
        entries = {wire.IDENTITY: SIGNER.public, wire.SIGNATURE: signature}
        return {**record, **wire.from_bytes(entries)}

    return change


@pytest.mark.parametrize(
    ("stage", "change", "left"),
    [
        (KEYS, signed(), SIX),
        (KEYS, signed(domain="a"), "acdef"),
        (KEYS, signed(number=2), "acdef"),
        (KEYS, signed(run=1), "acdef"),
        (KEYS, signed(size=0), "acdef"),
        (KEYS, signed(size=wire.LONGEST + 1), "acdef"),
        (KEYS, without("masking"), "acdef"),
        (KEYS, changed("sharing", POINT), "acdef"),
        (KEYS, changed("sharing", POINT[:-1]), "acdef"),
        (KEYS, lambda record: {**record, "masking": record["sharing"]}, "acdef"),
        (SHARES, without("to.a"), "acdef"),
        (SHARES, without("digest"), "acdef"),
        (SHARES, changed("to.a", np.zeros(2000, np.uint8)), "acdef"),
        (MASKED, changed("sums", np.zeros(SIZE - 1, np.uint64)), "acdef"),
        (MASKED, without("sums"), "acdef"),
        (CONFIRM, without("a"), SIX),
        (CONFIRM, changed("a", np.zeros(wire.CONFIRMED)), SIX),
        (CONFIRM, changed("a", np.zeros(wire.CONFIRMED - 1)), SIX),
        (UNMASK, without("a"), SIX),
        (UNMASK, changed("a", NONSENSE), SIX),
        (UNMASK, changed("a", NONSENSE[:-1]), SIX),
        (UNMASK, changed("c", [4, 0, 0, 0, *[9] * 48]), SIX),
    ],
)
def test_a_hostile_reply_is_dropped_or_does_no_harm(stage, change, left):
    def change_bytes(record):
        return {
            name: array if name == "sums" else array.astype(np.uint8)
            for name, array in change(record).items()
        }

    federation = Federation(forged={("b", stage): change_bytes})
    check(federation, left)
    assert set(federation.dropped) <= {"b"}


def other_secret(record):
    return {**record, "a": record["b"]}


@pytest.mark.parametrize("change", [changed("a", NONSENSE), other_secret])
def test_with_two_forged_shares_the_round_is_held(change):
    forged = {(name, UNMASK): change for name in "bc"}
    with pytest.raises(BadReplyError, match="'a'"):
        Federation(forged=forged).run()


def test_a_source_that_sends_the_keys_of_another_is_dropped_with_it():
    federation = Federation("abcde")
    federation.forged["b", KEYS] = lambda _: federation.replied["a", KEYS]
    check(federation, "cde")
    assert set(federation.dropped) == {"a", "b"}


def test_shares_that_a_source_cannot_read_are_refused_by_it():
    federation = Federation(forged={("b", SHARES): changed("to.a", NONSENSE)})
    with pytest.raises(RunError, check=names("masked sums", "b")):
        federation.run()


def test_shares_that_the_server_sends_back_to_their_source_are_refused_by_it():
    federation = Federation()
    federation.forged["b", SHARES] = lambda record: {
        **record,
        "to.a": federation.replied["a", SHARES]["to.b"],
    }
    federation.rng = Ordered()
    with pytest.raises(RunError, check=lambda error: error.value == "b"):
        federation.run()


class Ordered:
    """Replies arrive in the order of the messages."""

    permutation = staticmethod(range)


class Asked:
    """One source of nine, asked by a server of any kind; it gets what it should of the others."""

    def __init__(self, before=CONFIRM, lost="b"):
        self.federation = Federation(NINE, lost={lost: MASKED, "c": before})
        self.federation.run()
        self.state = self.federation.states["c"]

    def confirmed(self):
        """What the others send to it to confirm that all but one are active."""
        replied = self.federation.replied
        return {name: replied[name, CONFIRM]["c"] for name in "adefghi"}

    def kept(self):
        found = self.state.load("secure-sums")
        assert found is not None
        return {name: array.tobytes() for name, array in found[0].items()}

    def __call__(self, stage, number=1, sent=None, active=()):
        question = MaskSums(stage=stage, entries=sent, active=tuple(active))
        return SecureSums(self.state).answer(question, number, lambda: encode(np.zeros(SIZE))).entries


ACTIVE = "acdefghi"


@pytest.mark.parametrize("active", ["c", "cccccccc", "abdefghi", "acdefghix", "acdefg", ""])
def test_a_source_confirms_no_list_of_too_few_or_unknown_sources_or_without_itself(active):
    with pytest.raises(RunError, check=lambda error: error.value == sorted(set(active))):
        Asked()(CONFIRM, active=active)


def test_a_source_reveals_one_secret_of_each_and_only_once():
    ask = Asked()
    ask(CONFIRM, active=ACTIVE)
    kept, sent = ask.kept(), ask.confirmed()
    revealed = {name: array.tobytes() for name, array in ask(UNMASK, sent=sent).items()}
    kinds = {name: "key-share" if name == "b" else "seed-share" for name in NINE}
    assert revealed == {name: kept[f"{kind}.{name}"] for name, kind in kinds.items()}
    with pytest.raises(RunError):
        ask(UNMASK, sent=sent)
    assert ask.kept() == {}, "its secrets are gone"


@pytest.mark.parametrize("case", ["another list", "too few", "for others", "none"])
def test_a_source_reveals_nothing_unless_enough_others_confirm_its_list(case):
    """With a server that tells each its own list, secrets of both kinds would give a source's own sums."""
    ask = Asked()
    ask(CONFIRM, active=ACTIVE.replace("a", "") if case == "another list" else ACTIVE)
    sent = ask.confirmed()
    if case == "too few":
        sent = {name: sent[name] for name in "adefg"}
    elif case == "for others":
        sent = {name: ask.federation.replied[name, CONFIRM]["i"] for name in "adefgh"}
    elif case == "none":
        sent = {}
    with pytest.raises(RunError, check=names("masked sums")):
        ask(UNMASK, sent=sent)
    assert ask.kept(), "it has revealed nothing"


def test_a_source_helps_to_sum_one_list_of_sources_in_a_run():
    """The difference of two sums would be the numbers of a single source."""
    federation = Federation()
    check(federation, SIX)
    check(federation, SIX)
    federation.lost = {"b": MASKED}
    with pytest.raises(RunError, check=lambda error: error.value == list("acdef")):
        federation.run()


@pytest.mark.parametrize(("stage", "number"), [(SHARES, 1), (MASKED, 1), (UNMASK, 2)])
def test_a_source_answers_in_the_order_of_the_stages(stage, number):
    with pytest.raises(RunError, check=lambda error: error.value == stage):
        Asked()(stage, number, active=ACTIVE)


@pytest.mark.parametrize("case", ["alone", "twice", "one key", "another's"])
def test_a_source_shares_its_secrets_with_different_sources_alone(case):
    ask = Asked(before=SHARES, lost="x")
    pairs = {}
    for name in NINE:
        told = ask.federation.replied[name, KEYS]
        pairs[name] = np.concatenate([told["sharing"], told["masking"]])
    sent = {
        "alone": {"c": pairs["c"]},
        "twice": {**pairs, "x": pairs["a"]},
        "one key": {**pairs, "a": np.tile(pairs["a"][: wire.PUBLIC], 2)},
        "another's": {name: pairs[name] for name in "abdef"},
    }[case]
    with pytest.raises(RunError, check=lambda error: error.value == sorted(sent)):
        ask(SHARES, sent=sent)


def test_a_source_masks_nothing_without_the_shares_of_others():
    with pytest.raises(RunError, check=lambda error: error.value == []):
        Asked(before=MASKED, lost="x")(MASKED, sent={})


def test_numbers_that_do_not_fit_are_refused():
    for number in (3e9, np.nan, -np.inf):
        with pytest.raises(ConfigError, check=names("masked sums")):
            encode(np.array([1.0, number]))
    most = np.full(1, wire.LARGEST - 1)
    assert wire.decode(encode(-most) * np.uint64(wire.MOST)) == -most * wire.MOST
