"""Flower clients for federated domain adaptation; they know no strategy. Serving needs no PyTorch."""

from typing import TYPE_CHECKING

from fda_flower.bundles import bundled
from fda_flower.clients.aggregation import aggregate_on_target
from fda_flower.clients.local_mixture import Learner, train_mixture
from fda_flower.clients.serve import answer_role_query, return_errors, serve
from fda_flower.lazy import lazy_exports
from fda_flower.mixture_plan import MixturePlan

if TYPE_CHECKING:
    from fda_flower.clients.apfl import APFLTarget
    from fda_flower.clients.client import DomainClient
    from fda_flower.clients.ditto import DittoTarget
    from fda_flower.clients.feddaf import FedDAFTarget
    from fda_flower.clients.gradients import batch_gradients
    from fda_flower.clients.irm import IRMSource
    from fda_flower.clients.kd3a import KD3ATarget
    from fda_flower.clients.knn_per import KNNPerTarget
    from fda_flower.clients.local_part import LocalPartSource, LocalPartTarget
    from fda_flower.clients.mixture import MixtureTarget
    from fda_flower.clients.optimizer_hooks import record_updates
    from fda_flower.clients.recorder import Recorder, make_recorder
    from fda_flower.clients.source import SourceClient
    from fda_flower.clients.target import TargetClient
    from fda_flower.clients.torch_mixture import MixedModel, mix_on_target
    from fda_flower.clients.training import LocalTraining, evaluate, train
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "APFLTarget": "apfl",
            "DittoTarget": "ditto",
            "DomainClient": "client",
            "FedDAFTarget": "feddaf",
            "IRMSource": "irm",
            "KD3ATarget": "kd3a",
            "KNNPerTarget": "knn_per",
            "LocalPartSource": "local_part",
            "LocalPartTarget": "local_part",
            "LocalTraining": "training",
            "MixedModel": "torch_mixture",
            "MixtureTarget": "mixture",
            "Recorder": "recorder",
            "SourceClient": "source",
            "TargetClient": "target",
            "batch_gradients": "gradients",
            "evaluate": "training",
            "make_recorder": "recorder",
            "mix_on_target": "torch_mixture",
            "record_updates": "optimizer_hooks",
            "train": "training",
        },
    )

__all__ = [
    "APFLTarget",
    "DittoTarget",
    "DomainClient",
    "FedDAFTarget",
    "IRMSource",
    "KD3ATarget",
    "KNNPerTarget",
    "Learner",
    "LocalPartSource",
    "LocalPartTarget",
    "LocalTraining",
    "MixedModel",
    "MixturePlan",
    "MixtureTarget",
    "Recorder",
    "SourceClient",
    "TargetClient",
    "aggregate_on_target",
    "answer_role_query",
    "batch_gradients",
    "bundled",
    "evaluate",
    "make_recorder",
    "mix_on_target",
    "record_updates",
    "return_errors",
    "serve",
    "train",
    "train_mixture",
]
