"""Flower clients for federated domain adaptation; they know no strategy. Serving needs no PyTorch."""

from typing import TYPE_CHECKING

from fda_flower.names.packages import lazy_exports

if TYPE_CHECKING:
    from fda_flower.aggregation.mixture import MixturePlan
    from fda_flower.clients.client import DomainClient, SourceClient, TargetClient
    from fda_flower.clients.gradients import batch_gradients
    from fda_flower.clients.mixture_members import Learner, train_mixture
    from fda_flower.clients.mixture_plugin import MixedModel, mix_on_target
    from fda_flower.clients.recorder import Recorder, make_recorder, record_updates
    from fda_flower.clients.ridge_plugin import ridge_reply
    from fda_flower.clients.serving import aggregate_on_target, answer_role_query, return_errors, serve
    from fda_flower.clients.training import LocalTraining, evaluate, train
    from fda_flower.wire.bundles import bundled
else:
    __getattr__, __dir__ = lazy_exports(__name__)

# fmt: off
__all__ = [
    "DomainClient", "Learner", "LocalTraining", "MixedModel", "MixturePlan", "Recorder", "SourceClient",
    "TargetClient", "aggregate_on_target", "answer_role_query", "batch_gradients", "bundled", "evaluate",
    "make_recorder", "mix_on_target", "record_updates", "return_errors", "ridge_reply", "serve", "train",
    "train_mixture",
]
# fmt: on
