"""Apple's pfl-research: `FederatedAveraging` on the `SimulatedBackend`, in one process.

Its data sets do not shuffle; here a client's is made in a new order in each round, as its interface allows.
A callback evaluates after each round, except the first; instead the model is evaluated before it. In the
first round, which is not timed, it also evaluates each client's model on the client's own samples.
"""

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, StringMetricName, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from frameworks.pairing import Pairing
from frameworks.task import BATCH_SIZE, EPOCHS, LEARNING_RATE, TEST_BATCH_SIZE, Task

ACCURACY = StringMetricName("Central val | accuracy")


class WithLoss(nn.Module):
    """A network with the two functions that pfl-research asks of it."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self._network = network

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss of a batch to train on."""
        self.train()
        return cross_entropy(self._network(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        """Return the figures of a batch."""
        self.eval()
        return {"accuracy": Weighted(int((self._network(x).argmax(dim=1) == y).sum()), len(y))}


class AfterRound(TrainingProcessCallback):
    """Tells the stopwatch."""

    def __init__(self, pairing: Pairing) -> None:
        self._pairing = pairing

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """Pass on the accuracy that the evaluation before this callback has found."""
        self._pairing.round_done(aggregate_metrics[ACCURACY].overall_value)
        return False, Metrics()


def run(task: Task, pairing: Pairing) -> None:
    """Run all rounds."""
    clients, network = task.client_data(), WithLoss(task.model())

    def shuffled(user: int) -> PyTorchTensorDataset:
        x, y = clients[user]
        order = torch.randperm(len(y))
        return PyTorchTensorDataset((x[order], y[order]), user_id=str(user))

    federation = FederatedDataset(shuffled, get_user_sampler("minimize_reuse", list(range(task.clients))))
    evaluation = NNEvalHyperParams(local_batch_size=TEST_BATCH_SIZE)
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=task.all_rounds,
            evaluation_frequency=task.all_rounds,
            train_cohort_size=task.clients,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(federation, federation, postprocessors=[WeightByDatapoints()]),
        model=PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), lr=1.0)),
        model_train_params=NNTrainHyperParams(
            local_num_epochs=EPOCHS, local_learning_rate=LEARNING_RATE, local_batch_size=BATCH_SIZE
        ),
        model_eval_params=evaluation,
        callbacks=[
            CentralEvaluationCallback(PyTorchTensorDataset(task.test_data()), evaluation),
            AfterRound(pairing),
        ],
    )
