"""Estimates from gradients at the global model: what is asked, what follows, and what may be missing."""

import itertools

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from handmade import HandMade, initial, moves, weights

from fda_flower.aggregation import CountSketch, joint_weights
from fda_flower.clients import LocalTraining, SourceClient, TargetClient, aggregate_on_target, serve
from fda_flower.datasets import DataSpec, load_federation
from fda_flower.engines import LocalGrid
from fda_flower.errors import ConfigError
from fda_flower.models import build_model
from fda_flower.strategies import FedDA, FedDAJoint, FedGP

ROWS = {
    "a": np.array([[1.0, 3.0], [3.0, 3.0]]),
    "b": np.array([[-2.0, 1.0], [-2.0, 1.0]]),
    "t": np.array([[0.0, 1.0], [4.0, 1.0]]),
}
STRATEGIES = [FedDA, FedDAJoint, FedGP]


def at_start(make, beta=0.5, **options):
    auto = {} if make is FedDAJoint else {"auto": True}
    return make(beta=beta, estimate_at="start", **auto, **options)


def gradients(rows, config, **changed):
    """The record that a client sends."""
    B, mean = len(rows), rows.mean(axis=0)
    arrays = {
        "norm": np.array(mean @ mean),
        "variance": np.array(((rows - mean) ** 2).sum() / (B * (B - 1))),
        "batches": np.array(B),
    }
    if config["gradients"] == "full":
        arrays["full"] = mean.astype(np.float32)
    else:
        size, seed = config["sketch-size"], config["sketch-seed"]
        arrays |= {"sketch-size": np.array(size), "sketch-seed": np.array(seed)}
        arrays["sketch"] = CountSketch(size, seed)({"w": mean})
    sent = {k: v for k, v in {**arrays, **changed}.items() if v is not None}
    return ArrayRecord({name: Array(np.asarray(value)) for name, value in sent.items()})


def node(domain, delta=(0.5, 0.25), silent=False, changed=None, **kwargs):
    role = "target" if domain == "t" else "source"
    move = moves(delta, role, domain, **kwargs)

    def answer(model, message):
        content, config = move(model, message), message.content["config"]
        if "gradients" in config and not silent:
            content["gradients"] = gradients(ROWS[domain], config, **(changed or {}))
        return content

    return (role, domain, answer)


def nodes(**replaced):
    return [node(name, **replaced.get(name, {})) for name in ROWS]


def run(strategy, federation, rounds=1, mods=None):
    app = HandMade(federation, mods=mods)
    return weights(strategy.start(app.grid(), initial(), rounds)), strategy.history, app


@pytest.mark.parametrize("make", STRATEGIES)
def test_all_clients_are_asked_with_the_same_seed_and_no_batch_updates(make):
    strategy = at_start(make, sketch_size=64, warmup_rounds=1)
    _, history, app = run(strategy, nodes(), 3)
    assert all(not {"gradients", "batch-updates"} & set(config) for _, config in app.configs[:2])
    for number in (2, 3):
        asked = {domain: config for domain, config in app.configs if config["server-round"] == number}
        assert set(asked) == {"a", "b", "t"}
        for config in asked.values():
            assert config["gradients"] == "sketch"
            assert (config["sketch-size"], config["sketch-seed"]) == (64, number)
            assert "batch-updates" not in config
    assert all(entry["fallback"] is None for entry in history[-1]["sources"].values())


def test_beta_and_the_record_by_hand():
    # ḡ_T = (2, 1), v_T = 4; ḡ_a = (2, 3), v_a = 1; ḡ_b = (-2, 1), v_b = 0.
    _, (record,), _ = run(at_start(FedDA, gradient_encoding="full"), nodes())
    a, b = (record["sources"][name] for name in "ab")
    assert (a["sigma2"], a["d2"], a["beta"]) == (4, -1, 1)
    assert (b["sigma2"], b["d2"], b["beta"]) == (4, 12, 0.25)


def test_joint_weights_by_hand():
    _, (record,), _ = run(at_start(FedDAJoint, gradient_encoding="full"), nodes())
    expected = joint_weights(np.array([[-1.0, -4.0], [-4.0, 12.0]]), 4.0)
    assert [record["sources"][name]["weight"] for name in "ab"] == pytest.approx(expected.tolist())


def test_fedgp_by_hand():
    _, (record,), _ = run(at_start(FedGP, gradient_encoding="full"), nodes())
    a, b = (record["sources"][name] for name in "ab")
    assert a["tau2-d2"] == pytest.approx(1 - 49 / 12)
    assert (a["delta"], b["delta"]) == (1, 0)
    assert a["beta"] == b["beta"] == 1


@pytest.mark.parametrize("make", STRATEGIES)
def test_the_order_of_replies_changes_no_bit(make):
    federation = nodes()
    found = {
        run(at_start(make), [federation[i] for i in order], 2)[0].tobytes()
        for order in itertools.permutations(range(3))
    }
    assert len(found) == 1


@pytest.mark.parametrize("make", STRATEGIES)
@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ({"silent": True}, "it has no ArrayRecord 'gradients'"),
        ({"changed": {"sketch-seed": np.array(9)}}, "sketch of size 1024 with seed 9"),
        ({"changed": {"sketch-size": np.array(512)}}, "sketch of size 512 with seed 1"),
        ({"changed": {"sketch": np.full(1024, np.nan)}}, "'sketch' hold NaN"),
        ({"changed": {"variance": np.array(np.inf)}}, "'variance' hold NaN, infinity"),
        ({"changed": {"batches": np.array(1)}}, "at least 2 batches, got 1"),
    ],
)
@pytest.mark.parametrize("domain", ["a", "t"])
def test_without_usable_gradients_the_fixed_beta_serves_and_the_round_says_so(make, broken, says, domain):
    strategy = at_start(make, 0.25)
    _, (record,), _ = run(strategy, nodes(**{domain: broken}))
    assert (record["held"], record["dropped"]) == (None, [])
    for name, entry in record["sources"].items():
        if domain in (name, "t"):
            assert says in entry["fallback"]
            assert entry["fallback"].startswith("the target: ") == (domain == "t")
            assert entry.get("beta", 2 * entry.get("weight", 0)) == 0.25
        else:
            assert entry["fallback"] is None


@pytest.mark.parametrize("make", STRATEGIES)
@pytest.mark.parametrize("encoding", ["sketch", "full"])
@pytest.mark.parametrize("silent", ["", "a", "t"])
def test_on_the_target_the_same_bits_as_on_the_server(make, encoding, silent):
    federation = nodes(**({silent: {"silent": True}} if silent else {}))
    options = {"gradient_encoding": encoding, "warmup_rounds": 1}
    on_server, _, _ = run(at_start(make, **options), federation, 3)
    strategy = at_start(make, aggregate_on="target", **options)
    on_target, history, _ = run(strategy, federation, 3, [aggregate_on_target])
    assert on_target.tobytes() == on_server.tobytes()
    assert all(record["held"] is None and not record["dropped"] for record in history)
    assert not {"beta", "weight"} & set(history[-1]["sources"]["a"])


def test_on_the_target_its_gradients_stay_there():
    seen = {}

    class Spying(LocalGrid):
        def send_and_receive(self, messages, *, timeout=None):
            replies = list(super().send_and_receive(messages, timeout=timeout))
            seen.update(
                {r.content["info"]["domain"]: set(r.content) for r in replies if "arrays" in r.content}
            )
            return replies

    app = HandMade(nodes(), mods=[aggregate_on_target])
    at_start(FedDA, aggregate_on="target").start(Spying(app.app, 3), initial(), 1)
    assert "gradients" in seen["a"]
    assert "gradients" not in seen["t"]


def test_a_target_that_was_clipped_still_has_its_gradients():
    strategy = at_start(FedDA, max_update_norm=0.1)
    _, (record,), _ = run(strategy, nodes())
    assert record["target"]["clipped"] < 1
    assert all(entry["fallback"] is None for entry in record["sources"].values())


def test_steps_and_learning_rates_are_not_needed():
    federation = nodes(**{name: {"steps": 0, "rate": 0.0} for name in ROWS})
    _, (record,), _ = run(at_start(FedDA), federation)
    assert all(entry["fallback"] is None for entry in record["sources"].values())


def test_with_a_fixed_beta_nothing_is_asked():
    _, _, app = run(FedDA(estimate_at="start"), nodes())
    assert all("gradients" not in config for _, config in app.configs)


@pytest.mark.parametrize("make", STRATEGIES)
def test_settings_tell_where_it_estimates(make):
    sketched, full = at_start(make).settings(), at_start(make, gradient_encoding="full").settings()
    assert (sketched["estimate-at"], sketched["gradient-encoding"], sketched["sketch-size"]) == (
        "start", "sketch", 1024,
    )  # fmt: skip
    assert full["gradient-encoding"] == "full"


@pytest.mark.parametrize("make", STRATEGIES)
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"estimate_at": "end"}, "estimate_at is 'end': choose training or start"),
        ({"gradient_encoding": "norms"}, "gradient_encoding is 'norms': choose sketch or full"),
        ({"sketch_size": 0}, "sketch_size is 0"),
    ],
)
def test_other_words_are_refused(make, options, says):
    with pytest.raises(ConfigError, match=says):
        make(**options)


# Our own clients


def digits(make, invert, rounds=3, order=(0, 1, 2, 3), **options):
    """Rounds on digits, with or without a shift; the federation's order of nodes is given."""
    spec = DataSpec(
        "digits", "rotate", (("angle", 90.0 if invert else 0.0), ("invert", invert)), target_samples=40
    )
    federation = load_federation(spec)

    def model():
        return build_model("mlp", federation.shape, federation.classes, 0)

    def client(context):
        name = spec.domain_names[order[int(context.node_config["partition-id"])]]
        kind = TargetClient if name == federation.target else SourceClient
        return kind(federation.domains[name], model(), LocalTraining(0.01, 8), seed=1)

    strategy = at_start(make, **options)
    result = strategy.start(LocalGrid(serve(client), 4), ArrayRecord(model().state_dict()), rounds)
    return b"".join(array.data for array in result.arrays.values()), strategy.history


def mean_beta(record):
    return float(np.mean([entry["beta"] for entry in record["sources"].values()]))


def test_beta_sees_whether_there_is_a_shift():
    _, alike = digits(FedDA, invert=False, rounds=4)
    _, shifted = digits(FedDA, invert=True, rounds=4)
    assert mean_beta(alike[1]) > 0.9
    assert mean_beta(shifted[-1]) < 0.5
    assert all(entry["fallback"] is None for record in alike for entry in record["sources"].values())


def test_sketched_betas_are_near_exact_ones():
    _, sketched = digits(FedDA, invert=True, rounds=1, sketch_size=8192)
    _, exact = digits(FedDA, invert=True, rounds=1, gradient_encoding="full")
    for name, entry in exact[0]["sources"].items():
        assert sketched[0]["sources"][name]["d2"] == pytest.approx(entry["d2"], rel=0.2, abs=0.02)
        assert sketched[0]["sources"][name]["beta"] == pytest.approx(entry["beta"], abs=0.1)


@pytest.mark.parametrize("make", STRATEGIES)
def test_the_order_of_our_clients_changes_no_bit(make):
    one, _ = digits(make, invert=True, rounds=2)
    other, _ = digits(make, invert=True, rounds=2, order=(3, 1, 0, 2))
    assert one == other
