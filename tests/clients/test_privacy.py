"""Flower's mods for local differential privacy around our clients, as docs/deployment.md says them."""

from typing import Any

import pytest
from flwr.app import Context, Message
from flwr.clientapp.mod import LocalDpMod, fixedclipping_mod

from fda_flower import RunConfig
from fda_flower.client_app import make_client_app
from fda_flower.engines import Resources, run_local
from fda_flower.errors import RunError
from fda_flower.server_app import run_server

CLIPPING = 0.5


def run_with(mod: Any, roles: set[str], **settings: Any) -> list[dict[str, Any]]:
    """The records of a run in which the clients of some roles have a mod."""
    config = RunConfig(rounds=3, sources=2, model="mlp", device="cpu", **settings)
    plain, modded = make_client_app(config), make_client_app(config, mods=[mod])
    target = config.data.domain_names.index(config.data.target_name)
    histories = []

    def app(message: Message, context: Context) -> Message:
        role = "target" if context.node_config["partition-id"] == target else "source"
        return (modded if role in roles else plain)(message, context)

    run_local(lambda grid: histories.append(run_server(grid, config)[1]), app, 3, Resources())  # type: ignore[arg-type]
    return histories[0]


def noisy(epsilon: float) -> LocalDpMod:
    return LocalDpMod(clipping_norm=CLIPPING, sensitivity=CLIPPING, epsilon=epsilon, delta=1e-5)


@pytest.mark.parametrize("method", ["fedavg", "fedda", "fedgp", "fedda-auto", "fedgp-auto", "kd3a"])
def test_sources_can_clip_with_every_method(method: str) -> None:
    clip = LocalDpMod(CLIPPING, sensitivity=0, epsilon=1, delta=1e-5)
    for record in run_with(clip, {"source"}, method=method):
        assert (record["held"], record["dropped"]) == (None, [])
        for source in record["sources"].values():
            assert source.get("norm", CLIPPING) == pytest.approx(CLIPPING, rel=1e-4)


def test_auto_weighting_trusts_noisy_sources_less() -> None:
    beta = {}
    for epsilon in (1e6, 1.0):
        last = run_with(noisy(epsilon), {"source"}, method="fedda-auto")[-1]
        beta[epsilon] = max(source["beta"] for source in last["sources"].values())
    assert beta[1.0] < 0.01 < beta[1e6]


def test_the_target_can_have_it_with_a_fixed_beta() -> None:
    for record in run_with(noisy(1e6), {"source", "target"}, method="fedgp"):
        assert (record["held"], record["dropped"]) == (None, [])


def test_with_auto_weighting_the_target_sends_nothing_rather_than_batch_updates_without_noise() -> None:
    with pytest.raises(RunError, match="could not be updated for 3 rounds"):
        run_with(noisy(1e6), {"target"}, method="fedda-auto")


def test_the_mods_for_central_privacy_refuse_since_the_strategy_sends_no_limit() -> None:
    with pytest.raises(RunError, match="could not be updated for 3 rounds"):
        run_with(fixedclipping_mod, {"source"}, method="fedgp")


def test_kd3as_target_cannot_have_it_since_it_receives_several_models() -> None:
    with pytest.raises(RunError, match="no usable reply of the target"):
        run_with(noisy(1e6), {"target"}, method="kd3a")
