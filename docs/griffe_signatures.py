"""An extension for Griffe: options that are fields, and parameters that a docstring describes together."""

from collections import Counter
from typing import Any

from griffe import (
    Class,
    Docstring,
    DocstringSectionParameters,
    Extension,
    Function,
    Module,
    Parameter,
    ParameterKind,
    Parameters,
)

BASE, COMMON = "fda_flower.names.options.WithOptions", ("StrategySettings", "CommonOptions")
"""The class whose subclasses' annotated attributes are options, and the names of those that all share."""


class Signatures(Extension):
    """Takes every default from the signature, and the types of parameters such as ``target, sources``."""

    def on_package(self, *, pkg: Module, **kwargs: object) -> None:
        """Give classes with options their signatures, and correct all docstrings of a package."""
        self._sign(pkg)
        self._correct(pkg)

    def _sign(self, parent: Any) -> None:
        for each in list(parent.members.values()):
            if each.is_alias:
                continue
            if each.is_class and any(base.path == BASE for base in each.mro()):
                sign(each)
            elif each.is_module:
                self._sign(each)

    def _correct(self, parent: Any) -> None:
        for each in parent.members.values():
            if each.is_alias:
                continue
            if each.docstring and (each.is_function or each.is_class):
                correct(each.docstring, each)
            self._correct(each)


def sign(owner: Class) -> None:
    """Give a class the `__init__` that its fields make: its own first, ``**common`` for the shared ones."""
    fields: dict[str, Parameter] = {}
    shared = owner.name not in COMMON
    for base in [owner, *owner.mro()]:
        if not any(each.path == BASE for each in base.mro()) or (shared and base.name in COMMON):
            continue
        for name, each in base.members.items():
            # An attribute with a ``ClassVar`` has the first label alone.
            if (
                each.is_attribute
                and each.annotation
                and {"class-attribute", "instance-attribute"} <= each.labels
            ):
                kind = ParameterKind.keyword_only
                field = Parameter(name, annotation=each.annotation, kind=kind, default=each.value)
                fields.setdefault(name, field)
    fields = {name: each for name, each in fields.items() if "init=False" not in str(each.default)}
    every = Parameter("common", annotation=COMMON[-1], kind=ParameterKind.var_keyword)
    parameters = Parameters(*fields.values(), *([every] if shared else []))
    owner.set_member("__init__", Function("__init__", parameters=parameters))


def correct(docstring: Docstring, owner: Any) -> None:
    """Correct the parameters of a function's or a class's docstring."""
    for section in docstring.parsed:
        if isinstance(section, DocstringSectionParameters):
            described = Counter(parameter.description for parameter in section.value)
            for parameter in section.value:
                if parameter.name in owner.parameters:
                    signature = owner.parameters[parameter.name]
                    parameter.value = signature.default
                    if described[parameter.description] > 1:
                        parameter.annotation = signature.annotation
