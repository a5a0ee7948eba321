"""An extension for Griffe: a parameter's type and default in the reference are those of the signature."""

from typing import Any

from griffe import Docstring, DocstringSectionParameters, Extension, Module


class Signatures(Extension):
    """Takes types and defaults from signatures, also where a docstring joins parameters."""

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
    """Give the parameters of a docstring what the signature says."""
    for section in docstring.parsed:
        if isinstance(section, DocstringSectionParameters):
            for parameter in section.value:
                if parameter.name in owner.parameters:
                    signature = owner.parameters[parameter.name]
                    parameter.annotation, parameter.value = signature.annotation, signature.default
