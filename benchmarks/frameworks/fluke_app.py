"""fluke: its `FedAVG`, in one process, with everything in memory (its default).

Its server evaluates after each round; of its seven figures it is asked for the accuracy alone. Each client
keeps its model and optimizer (its default), which makes no difference to plain SGD.
"""

from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader
from fluke.evaluation import ClassificationEval
from fluke.utils import FederationObserver, ServerObserver
from torchmetrics import Accuracy

from frameworks.pairing import Pairing
from frameworks.task import (
    BATCH_SIZE,
    CLASSES,
    EPOCHS,
    LEARNING_RATE,
    TEST_BATCH_SIZE,
    Labelled,
    Task,
)


class AfterRound(ServerObserver, FederationObserver):
    """Tells the stopwatch."""

    def __init__(self, pairing: Pairing) -> None:
        self._pairing, self._accuracy = pairing, 0.0

    def server_evaluation(self, round: int, eval_type: str, evals: dict[str, float], **_: object) -> None:
        """Keep the figures of an evaluation."""
        self._accuracy = evals["accuracy"]

    def end_round(self, round: int) -> None:
        """Pass on the accuracy."""
        self._pairing.round_done(self._accuracy)


def loader(data: Labelled, batch_size: int, shuffle: bool) -> FastDataLoader:
    """Return samples as fluke takes them."""
    return FastDataLoader(*data, num_labels=CLASSES, batch_size=batch_size, shuffle=shuffle)


def run(task: Task, pairing: Pairing) -> None:
    """Run all rounds."""
    environment = FlukeENV()
    environment.set_device("cpu")
    accuracy = Accuracy(task="multiclass", num_classes=CLASSES)
    environment.set_evaluator(ClassificationEval(1, CLASSES, accuracy=accuracy))
    clients = [loader(data, BATCH_SIZE, shuffle=True) for data in task.client_data()]
    test = loader(task.test_data(), TEST_BATCH_SIZE, shuffle=False)
    data = DummyDataContainer(clients, [None] * len(clients), test, CLASSES)
    client = DDict(
        batch_size=BATCH_SIZE,
        local_epochs=EPOCHS,
        loss="CrossEntropyLoss",
        optimizer=DDict(name="SGD", lr=LEARNING_RATE),
        scheduler=DDict(name="StepLR", step_size=1, gamma=1),
    )
    settings = DDict(client=client, server=DDict(weighted=True), model=task.model())
    federation = FedAVG(task.clients, DataSplitter(data), settings)
    federation.set_callbacks([AfterRound(pairing)])
    federation.run(task.all_rounds, 1.0)
