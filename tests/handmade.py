"""A tiny federation by hand: a model of two numbers, clients whose replies each test decides."""

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fda_flower.aggregation import (
    Sums,
    find_buffers,
    head_in,
    identifier_form,
    shape_of_head,
    to_rows,
    to_targets,
)
from fda_flower.engines import LocalGrid
from fda_flower.runs.methods import METHODS
from fda_flower.wire.asked import QUESTIONS
from fda_flower.wire.asked.fada import VECTORS, Align, Aligned, Disentangle, Disentangled
from fda_flower.wire.asked.features import GaussiansMixed, MixGaussians
from fda_flower.wire.asked.generalisation import LossMeasured, MeasureLoss, Penalise, Penalised
from fda_flower.wire.asked.kd3a import Distil, Distilled
from fda_flower.wire.asked.personal import (
    Blend,
    Blended,
    EvaluateNeighbours,
    Guide,
    Guided,
    NeighboursUsed,
    Personalise,
    Personalised,
    TrainedToMix,
    TrainToMix,
)
from fda_flower.wire.asked.personal_layers import KeepPart, PartKept
from fda_flower.wire.asked.ridge import FitHead, HeadFitted, Summed, SumRows


def build(method, **options):
    """A method without warm-up rounds; what FedGP estimates from is not sketched."""
    if method == "fedgp-auto":
        options["batch_update_encoding"] = "full"
    return METHODS[method].build(**{"warmup_rounds": 0, **options})


def rounds_with(strategy, name):
    """The rounds whose record has an entry."""
    return [record["round"] for record in strategy.history if name in record]


def reply_of(model, examples=10, steps=2, rate=0.5, role="source", domain="a", extra=None, **metrics):
    """The records of a good reply."""
    numbers = {"num-examples": examples, "num-steps": steps, "learning-rate": rate, "train-loss": 1.0}
    content = RecordDict(
        {
            "arrays": ArrayRecord({name: _array(value) for name, value in model.items()}),
            "metrics": MetricRecord({**numbers, **metrics}),
            "info": ConfigRecord({"role": role, "domain": domain}),
        }
    )
    if extra is not None:
        content["batch-updates"] = ArrayRecord({name: _array(value) for name, value in extra.items()})
    return content


def _array(value):
    return Array(np.asarray(value))


def summed(model, content):
    """Sums over rows of the width that the model has."""
    outputs, features = shape_of_head(model)
    examples = content["metrics"]["num-examples"]
    rows = to_rows(np.random.default_rng(examples).normal(size=(examples, features)))
    return Sums.of(rows, to_targets(np.arange(examples) % outputs, outputs)).to_arrays()


def settings_of(message):
    """The settings in a message, with its question, if it has one."""
    question = QUESTIONS.get(message.metadata.message_type)
    asked = {} if question is None else {"question": question.read(message.content)}
    return {**message.content["config"], **asked}


def add_answer(content, message):
    """A good answer to the message's question, if it has one."""
    if question := QUESTIONS.get(message.metadata.message_type):
        for name, record in answer_to(question.read(message.content), message, content).records().items():
            content.setdefault(name, record)


def answer_to(question, message, content):
    """A good answer to a question in a message, by its class, given the rest of the reply."""
    number = message.content["config"]["server-round"]
    model, after = (
        {name: array.numpy() for name, array in each.get("arrays", {}).items()}
        for each in (message.content, content)
    )
    return {
        KeepPart: lambda: PartKept(began_in=number - 1),
        Penalise: lambda: Penalised(penalty=0.0),
        MeasureLoss: lambda: LossMeasured(loss_at_start=1.0),
        Distil: lambda: Distilled(
            mask_share=0.5,
            contribution={domain: 1.0 + i for i, domain in enumerate(sorted(question.models))},
            head=(),
        ),
        Disentangle: lambda: Disentangled(
            features={VECTORS: np.ones((2, 3), np.float32)}, fresh_start=number == 1
        ),
        Align: lambda: Aligned(
            dispersion=1.0,
            gain={domain: 0.1 * i for i, domain in enumerate(sorted(question.models))},
            identifiers={domain: identifier_form(3) for domain in question.models},
        ),
        Personalise: lambda: Personalised(fresh_start=number == 1, distance=0.5),
        TrainToMix: lambda: TrainedToMix(fresh_start=number == 1, alpha=question.mixing),
        Blend: lambda: Blended(fresh_start=number == 1, adapted=after, **blended(number)),
        Guide: lambda: Guided(
            guidance={
                name: np.asarray(2 * after[name] - model[name], model[name].dtype)
                for name in after.keys() - find_buffers(model)
            }
        ),
        EvaluateNeighbours: lambda: NeighboursUsed(weight=0.25),
        SumRows: lambda: Summed(sums=summed(model, content)),
        FitHead: lambda: HeadFitted(temperature=8.0, weights={}, held_out=0.75, held_out_target=0.5),
        MixGaussians: lambda: GaussiansMixed(gaussians=gaussians(after, number), own_share=0.5),
    }.get(type(question), question.answer)()


def blended(number):
    """What FedDAF's blend follows from; nothing in the first round."""
    return {"sim": 0.5, "theta": 1.0, "alpha": 0.6} if number > 1 else {}


def gaussians(model, number):
    """Gaussians that have other means in each round."""
    classes, features = shape_of_head(model)
    head, _ = head_in(model)
    means = head + np.arange(classes)[:, None] * number
    covariance = np.diag(np.full(features, 1 + np.abs(head).mean()))
    return {"means": means.astype(np.float32), "covariance": covariance.astype(np.float32)}


class HandMade:
    """A client app whose nodes are given: role, domain and how to answer a train message.

    What else a node tells of itself is in `info`, by domain. `metrics` are those of an evaluation, or a
    function of domain and settings that returns them. It keeps the settings of the train messages by domain,
    and the contents of the evaluate messages.
    """

    def __init__(self, nodes, accuracy=0.5, info=(), mods=None, metrics=None):
        self.nodes = nodes
        self.info = dict(info)
        self.configs: list[tuple[str, dict]] = []
        self.evaluated: list[RecordDict] = []
        self.evaluations: list[dict] = []
        self.app = ClientApp(mods=mods)
        found = metrics or {"accuracy": accuracy, "loss": 1.0}

        @self.app.query("role")
        def role(message, context):
            role, domain, _ = self.nodes[context.node_config["partition-id"]]
            told = {"domain": domain} | ({"role": role} if role else {})
            info = ConfigRecord(told | self.info.get(domain, {}))
            return Message(RecordDict({"info": info}), reply_to=message)

        def train(message, context):
            _, domain, answer = self.nodes[context.node_config["partition-id"]]
            self.configs.append((domain, settings_of(message)))
            model = {name: array.numpy() for name, array in message.content["arrays"].items()}
            content = answer(model, message)
            add_answer(content, message)
            return Message(content, reply_to=message)

        self.app.train()(train)

        def evaluate(message, context):
            self.evaluated.append(message.content)
            _, domain, _ = self.nodes[context.node_config["partition-id"]]
            self.evaluations.append(settings_of(message))
            told = found(domain, self.evaluations[-1]) if callable(found) else found
            content = RecordDict({"metrics": MetricRecord({**told, "num-examples": 4})})
            add_answer(content, message)
            return Message(content, reply_to=message)

        self.app.evaluate()(evaluate)
        for question in QUESTIONS.values():
            kind, answer = {"train": (self.app.train, train), "evaluate": (self.app.evaluate, evaluate)}[
                question.kind
            ]
            kind(question.action)(answer)

    def grid(self):
        """A grid of these nodes."""
        return LocalGrid(self.app, len(self.nodes))

    def told(self, setting, domain=None):
        """What the train messages say of a setting: by domain, or to one domain round by round."""
        if domain is None:
            return {each: config.get(setting) for each, config in self.configs}
        return [config.get(setting) for each, config in self.configs if each == domain]


class Watched(LocalGrid):
    """A grid that keeps the messages as type, domain, content and timeout, and the records of replies."""

    def __init__(self, app):
        super().__init__(app.app, len(app.nodes))
        self.domains = {i + 2: domain for i, (_, domain, _) in enumerate(app.nodes)}
        self.seen: list[tuple] = []
        self.replied: list[tuple[str, str, set[str]]] = []

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        for each in messages:
            kind, domain = each.metadata.message_type, self.domains[each.metadata.dst_node_id]
            self.seen.append((kind, domain, each.content, timeout))
        replies = list(super().send_and_receive(messages, timeout=timeout))
        for each in replies:
            names = set(each.content) if each.has_content() else set()
            told = self.domains[each.metadata.src_node_id]
            self.replied.append((each.metadata.message_type, told, names))
        return replies


def failing(answer, *rounds, why="off"):
    """An answer that fails in some rounds, or in all."""

    def answer_or_fail(model, message):
        if not rounds or message.content["config"]["server-round"] in rounds:
            raise OSError(why)
        return answer(model, message)

    return answer_or_fail


def off_in(node, *rounds):
    """A node that fails in some rounds, or in all."""
    role, domain, answer = node
    return role, domain, failing(answer, *rounds)


def bits(arrays):
    """The bytes of a model, of layers or a record, by name."""
    values = {name: array.numpy() if isinstance(array, Array) else array for name, array in arrays.items()}
    return {name: np.asarray(value).tobytes() for name, value in values.items()}


def moves(delta, role="source", domain="a", **kwargs):
    """An answer that moves every parameter by `delta` (a number or an array)."""

    def answer(model, message):
        with np.errstate(over="ignore"):  # a test may want a client that overflows
            moved = {name: (array + np.asarray(delta)).astype(array.dtype) for name, array in model.items()}
        return reply_of(moved, role=role, domain=domain, **kwargs)

    return answer


def initial(values=(1.0, 2.0), method=None):
    """A global model of one array ``w``; for a method that needs a linear layer it is the bias of one."""
    arrays = {"w": _array(np.array(values, np.float32))}
    if method is not None and "frozen body" in METHODS[method].needs:
        arrays = {"matrix": _array(np.array([[1.0, 0.5], [0.0, 2.0]], np.float32)), **arrays}
    return ArrayRecord(arrays)


def weights(result):
    """The final ``w``."""
    return result.arrays["w"].numpy()


def steps_extra(deltas):
    """The full form of batch updates."""
    rows = np.asarray(deltas, np.float32)
    return {"norms": (rows.astype(np.float64) ** 2).sum(axis=1), "full": rows}


A, B, T = (
    ("source", "a", moves([0.5, 0.25], domain="a", examples=30)),
    ("source", "b", moves([0.1, -0.7], domain="b", examples=10)),
    ("target", "t", moves([0.25, 0.5], "target", "t", examples=10)),
)
