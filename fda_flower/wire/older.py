"""Flower's older API: from ``flwr``, or from ``flwr.compat``, where Flower is moving it."""

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flwr.client import NumPyClient as NumPyClient
    from flwr.common import Code as Code
    from flwr.common import EvaluateIns as EvaluateIns
    from flwr.common import EvaluateRes as EvaluateRes
    from flwr.common import FitIns as FitIns
    from flwr.common import FitRes as FitRes
    from flwr.common import GetPropertiesIns as GetPropertiesIns
    from flwr.common import NDArrays as NDArrays
    from flwr.common import Parameters as Parameters
    from flwr.common import Scalar as Scalar
    from flwr.common import parameters_to_ndarrays as parameters_to_ndarrays
    from flwr.server.client_manager import ClientManager as ClientManager
    from flwr.server.client_proxy import ClientProxy as ClientProxy
    from flwr.server.strategy import Strategy as Strategy

ROOTS = ("flwr", "flwr.compat")
TYPES = (
    *("Code", "EvaluateIns", "EvaluateRes", "FitIns", "FitRes"),
    *("GetPropertiesIns", "NDArrays", "Parameters", "Scalar"),
)
HOMES = {
    "NumPyClient": ("client", "client.numpy_client"),
    **dict.fromkeys(TYPES, ("common", "common.typing")),
    "parameters_to_ndarrays": ("common", "common.parameter"),
    "ClientManager": ("server.client_manager",),
    "ClientProxy": ("server.client_proxy",),
    "Strategy": ("server.strategy",),
}
"""By name, the modules below each of the `ROOTS` that may have it."""


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    errors = list[Exception]()
    for module in (f"{root}.{home}" for root in ROOTS for home in HOMES[name]):
        try:
            return globals().setdefault(name, resolve_name(f"{module}:{name}"))
        except (ImportError, AttributeError) as error:
            errors.append(error)
    raise errors[0]
