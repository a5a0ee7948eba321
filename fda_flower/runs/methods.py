"""The table of methods.

Strategies are named, not imported: only the method that runs is loaded. A second table holds the
centralised references, which need the data in one place.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from fda_flower.errors import ConfigError, unknown
from fda_flower.names.registry import Registry, resolve

if TYPE_CHECKING:
    from fda_flower.strategies import DomainAdaptationStrategy


@dataclass(frozen=True)
class Method:
    """A method that can be run by name.

    Attributes
    ----------
    label, summary : str
        Its name in tables and pictures, and one line for ``fda list``.
    strategy : str or type
        Its `DomainAdaptationStrategy`: the class, or ``"module:Class"``.
    options : Mapping
        Keyword arguments of the strategy for this method.
    all_target_labels : bool
        Whether the target trains on all its training samples, regardless of `target_samples`.
    ensemble : bool
        Whether several models make its predictions; reports mark it.
    single : str, optional
        The option with which one model predicts, if there is one.
    needs : tuple of str
        Requirements on the data and the network; see `fda_flower.runs.needs.NEEDS`.
    train : str, optional
        The part of every network that it trains, a word of `fda_flower.models.Train`. Default: the run's.
    every_site : str or type, optional
        The strategy where every site is a target, if it can be run so.
    rounds : int, optional
        A fixed number of rounds. Default: the run's.
    enough : int, optional
        The number of labels, patients and events of a target from which on its defaults refuse none.
        Default: its strategy says.
    concludes : bool
        Whether its strategy may have lines to say at a run's end; see `MethodHooks.conclusion`.
    centralised : bool
        Whether it is a `fda_flower.references.losses.Reference`: it has no clients, and needs all data
        in one place. Reports mark it.
    """

    label: str
    summary: str
    strategy: "str | type[DomainAdaptationStrategy]"
    options: Mapping[str, Any] = field(default_factory=dict)
    all_target_labels: bool = False
    ensemble: bool = False
    single: str | None = None
    needs: tuple[str, ...] = ()
    train: str | None = None
    every_site: "str | type[DomainAdaptationStrategy] | None" = None
    rounds: int | None = None
    enough: int | None = None
    concludes: bool = True
    centralised: bool = False

    @property
    def has_target(self) -> bool:
        """Whether one node is the target; see `MethodHooks.has_target`."""
        return self.centralised or self.strategy_class.has_target

    @property
    def trains_on_features(self) -> bool:
        """Whether sites train; otherwise they send sums, which features that differ by 1e-5 hardly change."""
        return self.train != "linear"

    @property
    def title(self) -> str:
        """Its label, with a mark if it is a centralised reference."""
        return f"{self.label} (centralised)" if self.centralised else self.label

    @cached_property
    def strategy_class(self) -> "type[DomainAdaptationStrategy]":
        """The strategy's class."""
        strategy: type[DomainAdaptationStrategy] = resolve(self.strategy)
        return strategy

    def build(self, **options: Any) -> "DomainAdaptationStrategy":
        """Make the strategy; `options` win over those of the method."""
        return self.strategy_class(**{**self.options, **options})

    @cached_property
    def noise(self) -> Literal["sums", "steps"] | None:
        """What of a source can have noise that protects each patient: its sums, or its training's steps.

        None if the site does not know how much one patient changes each reply to a train message, or if
        `MethodHooks.without_patients` has a reason.
        """
        from fda_flower.site.config import PATIENT
        from fda_flower.site.sensitivities import RELEASES
        from fda_flower.wire.asked.ridge import SumRows
        from fda_flower.wire.protocol import TRAIN

        strategy = self.build()
        questions = [each for each in strategy.asked_questions if each.kind == TRAIN]
        messages = {each.message_type() for each in questions} | {TRAIN for _ in strategy.trained_plainly}
        of_sources = "source" in strategy.trained_plainly or any("source" in each.roles for each in questions)
        if strategy.without_patients or not of_sources or not messages <= RELEASES[PATIENT].keys():
            return None
        return "sums" if SumRows.message_type() in messages else "steps"

    @property
    def variants(self) -> Mapping[str, Mapping[str, Any]]:
        """The strategy's options by variant; see `DomainAdaptationStrategy.variants`."""
        return self.strategy_class.variants

    def is_ensemble(self, options: Mapping[str, Any]) -> bool:
        """Return whether several models predict, given the strategy's options."""
        return self.ensemble and not (self.single and options.get(self.single))

    def takes(self, option: str) -> bool:
        """Return whether the strategy has an option of this name."""
        return option.replace("-", "_") in inspect.signature(self.strategy_class).parameters


def _ours(label: str, summary: str, strategy: str, **more: Any) -> Method:
    return Method(label, summary, f"fda_flower.strategies.{strategy}", **{"concludes": False, **more})


AUTO, LATE = {"auto": True}, {"warmup_rounds": 50}
BODY, SEVERAL = ("body", "trained body"), ("two sources",)
ON_FEATURES = ("classes", "frozen body")

METHODS: Registry[Method] = Registry(
    "methods",
    Method,
    {
        "source-only": _ours(
            "Source Only", "the sources' mean; the target does not train", "fedavg:SourceOnly"
        ),
        "fedavg": _ours("FedAvg", "the mean of all clients, target included", "fedavg:FedAvg"),
        "fedprox": _ours("FedProx", "FedAvg, each client drawn to the global model", "fedavg:FedProx"),
        "target-only": _ours("Target Only", "the target alone", "fedavg:TargetOnly"),
        "fedda": _ours("FedDA", "target and sources combined with a fixed β", "adaptive:FedDA"),
        "fedgp": _ours("FedGP", "the target projected on each source, with a fixed β", "adaptive:FedGP"),
        "fedda-auto": _ours("FedDA_Auto", "FedDA, β estimated every round", "adaptive:FedDA", options=AUTO),
        "fedgp-auto": _ours("FedGP_Auto", "FedGP, β estimated every round", "adaptive:FedGP", options=AUTO),
        "fedda-joint": _ours("FedDA_Joint", "FedDA, sources weighed together", "adaptive:FedDAJoint"),
        "feddaf": _ours("FedDAF", "two models blended on the target", "personal:FedDAF"),
        "feddwa": _ours("FedDWA", "a personal model for each client, by distances", "personal:FedDWA"),
        "fedavg-ft": _ours("FedAvg FT", "FedAvg, fine-tuned by the target every round", "fedavg:FedAvgFT"),
        "ditto": _ours("Ditto", "FedAvg, and a personal model near it", "personal:Ditto"),
        "irm": _ours(
            "IRM",
            "the sources' mean, trained towards features that predict alike in all sources",
            "generalisation:IRM",
            needs=("classes", *SEVERAL),
        ),
        "vrex": _ours(
            "V-REx", "the sources, weighted to even out their losses", "generalisation:VREx", needs=SEVERAL
        ),
        "groupdro": _ours(
            "GroupDRO",
            "the sources' mean, in which the worst one weighs more and more",
            "generalisation:GroupDRO",
            needs=SEVERAL,
        ),
        "fedomg": _ours(
            "FedOMG",
            "the sources' mean, turned to the source it serves worst",
            "generalisation:FedOMG",
            needs=SEVERAL,
        ),
        "kd3a": _ours(
            "KD3A",
            "sources' own heads on one body, distilled on the target without labels",
            "kd3a:KD3A",
            needs=("classes", "body", "unlabelled"),
        ),
        "fada": _ours(
            "FADA",
            "features of sources and target aligned without labels; real sites send no features",
            "fada:FADA",
            needs=("classes", *BODY, "unlabelled"),
        ),
        "apfl": _ours(
            "APFL",
            "FedAvg, mixed with a model of the target's own",
            "personal:APFL",
            ensemble=True,
        ),
        "knn-per": _ours(
            "kNN-Per",
            "FedAvg, mixed with the nearest labelled samples of the target",
            "personal:KNNPer",
            needs=("body", "classes"),
        ),
        "pfedfda": _ours(
            "pFedFDA",
            "Gaussians of the classes' features, the clients' mean mixed with the target's own",
            "features:PFedFDA",
            needs=ON_FEATURES,
        ),
        "fedper": _ours(
            "FedPer",
            "FedAvg; each client keeps its head",
            "personal_layers:FedPer",
            needs=BODY,
        ),
        "fedrep": _ours(
            "FedRep",
            "a shared body, a head of its own at each client",
            "personal_layers:FedRep",
            needs=BODY,
        ),
        "fedbn": _ours(
            "FedBN",
            "FedAvg; each client keeps its BatchNorm layers",
            "personal_layers:FedBN",
            needs=("batch-norm",),
        ),
        "mixture": _ours(
            "Mixture",
            "the sources' model and the target's own, mixed on the target",
            "mixture:Mixture",
            ensemble=True,
            single="student",
            needs=("no several labels",),
            concludes=True,
        ),
        "ridge": _ours(
            "Ridge",
            "one round: a linear layer in closed form, between the sources' and the target's own",
            "ridge:Ridge",
            needs=("frozen body",),
            train="linear",
            enough=2,
            concludes=True,
            every_site="fda_flower.strategies.ridge_sites:RidgeEverySite",
            rounds=1,
        ),
        "finetune-offline": _ours(
            "Finetune_Offline", "50 rounds of the sources, then the target", "fedavg:TargetOnly", options=LATE
        ),
        "oracle": _ours(
            "Oracle", "the target alone, with all its labels", "fedavg:TargetOnly", all_target_labels=True
        ),
    },
)
"""The methods by name. Add one with a strategy in a new file and a line here."""

PREFIX = "central:"
"""Prefix of the names of centralised references."""


def _central(label: str, summary: str, reference: str, *needs: str) -> Method:
    strategy = f"fda_flower.references.losses:{reference}"
    return Method(label, summary, strategy, needs=needs, concludes=False, centralised=True)


ALIGNED, COSINE = (*SEVERAL, *BODY), ("classes", "body")

CENTRAL: Registry[Method] = Registry(
    "references",
    Method,
    {
        "erm": _central("ERM", "the sources' pooled samples; never sees the target", "ERM"),
        "coral": _central("CORAL", "ERM, features aligned by mean and covariance", "CORAL", *ALIGNED),
        "mmd": _central("MMD", "ERM, features aligned by Gaussian kernels", "MMD", *ALIGNED),
        "dann": _central("DANN", "ERM, features that hide the source", "DANN", *ALIGNED),
        "mixup": _central("Mixup", "ERM on mixed pairs of the sources' samples", "Mixup", *SEVERAL),
        "s+t": _central("S+T", "the samples of sources and target, pooled", "SourceTarget", *COSINE),
        "ent": _central("ENT", "S+T, certain of unlabelled samples", "Entropy", *COSINE, "unlabelled"),
        "mme": _central("MME", "S+T, minimax entropy", "MinimaxEntropy", "classes", *BODY, "unlabelled"),
    },
)
"""The centralised references by name without `PREFIX`. Add one with a class and a line here."""


OF_FLOWER = "flower:"
"""Prefix of the names of Flower's strategies."""

FLOWER: Mapping[str, Method] = {
    rule: Method(f"{rule} (Flower)", summary, f"fda_flower.references.flower:Flower{rule}", concludes=False)
    for rule, summary in {
        "FedAvg": "the mean of all clients",
        "FedMedian": "the coordinate-wise median of all clients",
        "FedTrimmedAvg": "the coordinate-wise trimmed mean of all clients",
        "Krum": "the client nearest to its neighbours",
        "MultiKrum": "the mean of the clients that Krum ranks first",
        "Bulyan": "a trimmed mean of the clients that Multi-Krum selects",
    }.items()
}
"""Flower's strategies by name without `OF_FLOWER`; they treat the target like any client."""

SURVEYS: Mapping[str, Method] = {
    "describe": _ours(
        "Describe",
        "no training: what sites say of their rows, and whether they are alike",
        "describe:Describe",
        needs=("rows",),
        train="linear",
        concludes=True,
        every_site="fda_flower.strategies.describe:Describe",
        rounds=1,
    )
}
"""What can be run like a method, and makes no model."""

FAMILIES: Mapping[str, Mapping[str, Method]] = {"": METHODS, PREFIX: CENTRAL, OF_FLOWER: FLOWER}
"""All tables of methods, by the prefix of their names."""


def method_names() -> list[str]:
    """Return the names of all methods, centralised references and Flower strategies."""
    return [f"{prefix}{name}" for prefix, family in FAMILIES.items() for name in family]


def run_names() -> list[str]:
    """Return the names of all that can be run: methods and `SURVEYS`."""
    return [*method_names(), *SURVEYS]


def find_method(name: str) -> Method:
    """Return a method by name, of `SURVEYS` or any of `FAMILIES`; raise a `ConfigError` if there is none."""
    if name in SURVEYS:
        return SURVEYS[name]
    for prefix, family in FAMILIES.items():
        own = name.removeprefix(prefix)
        if name.startswith(prefix) and own in family:
            return family[own]
    raise unknown("method", name, run_names())


def messages_of(name: str, role: str, **options: Any) -> frozenset[str]:
    """Return the types of the messages that a method sends to nodes of a role, with options of its strategy.

    A node answers no others in a run of the method. A centralised reference sends none.

    Examples
    --------
    >>> sorted(messages_of("ridge", "source", secure=True)), sorted(messages_of("ridge", "target"))
    (['train.mask_sums'], ['evaluate', 'train.fit_head'])
    """
    method = find_method(name)
    return frozenset() if method.centralised else method.build(**options).asked_of(role)


def of_every_site(name: str) -> Method:
    """Return the form of a method in which every site is a target; raise a `ConfigError` if it has none."""
    method = find_method(name)
    if method.every_site is None:
        others = [each for each, other in METHODS.builtin.items() if other.every_site]
        message = f"target is all, but method '{name}' has one target"
        remedy = f"name the target, or choose one of {', '.join(others)}"
        raise ConfigError(message, thing="target", value="all", remedy=remedy)
    return replace(method, strategy=method.every_site)


def check_federated(name: str) -> None:
    """Raise a `ConfigError` if a name is a centralised reference, which has no clients."""
    if find_method(name).centralised:
        message = f"method '{name}' needs all data in one place"
        remedy = "run it with --engine local, or choose another method"
        raise ConfigError(message, thing="method", value=name, remedy=remedy)
