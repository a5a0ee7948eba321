"""An extension for Griffe: types and defaults of parameters that a docstring describes together."""

from collections import Counter
from typing import Any

from griffe import Docstring, DocstringSectionParameters, Extension, Module


class Signatures(Extension):
    """Takes every default from the signature, and the types of parameters such as ``target, sources``."""

    def on_package(self, *, pkg: Module, **kwargs: object) -> None:
        """Correct all docstrings of a package."""
        self._correct(pkg)

    def _correct(self, parent: Any) -> None:
        for each in parent.members.values():
            if each.is_alias:
                continue
            if each.docstring and (each.is_function or each.is_class):
                correct(each.docstring, each)
            self._correct(each)


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
