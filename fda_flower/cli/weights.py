"""The command that pins a file of weights by its digest, and says what to type to use it."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from fda_flower.cli.options import among, read_together
from fda_flower.cli.output import out
from fda_flower.errors import invalid
from fda_flower.models.own import LIBRARIES
from fda_flower.names.options import join_options
from fda_flower.names.words import counted

if TYPE_CHECKING:
    from fda_flower.models.weights import WeightsFile

MEGA = 1_000_000

WRAPPED = "module."
"""Begins the names of a model that was trained on several devices."""

UNNAMED = ": save finite numbers, or add --model, if the network has no such array"
"""The remedy for an entry that no network can have, where none is named."""

MOST = 10
"""How many entries that do not fit are printed; ``--json`` has them all."""


def weights(
    what: Annotated[
        str,
        typer.Argument(
            metavar="FILE|NAME",
            help="A state dictionary (.pth, .safetensors); or timm:NAME or torchvision:NAME, to download it.",
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The network that the file is for: compare its arrays.",
            show_default="none",
            autocompletion=among(f"{library}:" for library in LIBRARIES),
        ),
    ] = None,
    model_option: Annotated[
        list[str], typer.Option(metavar="NAME=VALUE", help="Option of the network.", show_default="none")
    ] = [],  # noqa: B006
) -> None:
    """Pin a file of weights by its SHA-256, and say what to type to use it, here and at other sites.

    The file is linked or copied into the folder weights of this account's cache (FDA_CACHE_DIR).
    """
    from fda_flower.models.weights import PINNED

    options, published = read_together(model_option), what.partition(":")[0] in LIBRARIES
    if published and model not in (None, what):
        raise invalid("model", model, "leave --model out", f"and '{what}' is downloaded")
    if (name := what if published else model) is None and options:
        raise invalid("model-option", " ".join(model_option), "add --model", "but no network is named")
    file, problems = _read(what, name, options)
    size, arrays, numbers = file.path.stat().st_size, len(file.state), file.numbers
    out.text(f"{what}: {size / MEGA:,.1f} MB, {counted(arrays, 'array')}, {counted(numbers, 'number')}")
    out.text(f"SHA-256: {file.digest.removeprefix(PINNED)}")
    result = {"digest": file.digest, "bytes": size, "arrays": arrays, "numbers": numbers}
    result |= {"model": name, "problems": problems}
    if problems:
        count = counted(len(problems), "problem")
        lines = [*problems[:MOST], f"{name or 'no network'} cannot be read from it: {count}"]
        out.result(result, *(f"Not ok: {line}" for line in lines))
        raise typer.Exit(1)
    out.text(f"It fits {name}." if name else "Add --model to see whether it fits a network.")
    place = file.stored()
    out.text(f"Stored as {place}")
    out.text(f'At other sites run this on the same file; a node needs allow-models = "{file.digest}"')
    given = quote(join_options([*options.items(), ("weights", file.digest)]))
    typed = f"--model {name or 'NAME'} --model-option {given}"
    out.result({**result, "file": place, "options": typed}, typed)


def _read(what: str, name: str | None, options: dict[str, str]) -> tuple["WeightsFile", list[str]]:
    """Return a file, or the one that a library publishes, and why it does not fit a network, or any."""
    from fda_flower.models.pretrained import architecture, differences, faults, fitting
    from fda_flower.models.weights import WeightsFile, download

    network, path = None if name is None else architecture(name, options), Path(what).expanduser()
    if name != what and not path.is_file():
        remedy = "give a file of weights, or the name of a network as timm:NAME or torchvision:NAME"
        raise invalid("weights", what, remedy, "but there is no such file")
    file = download(what) if name == what else WeightsFile.read(path)
    if file.state and all(entry.startswith(WRAPPED) for entry in file.state):
        return file, [f"every name begins with '{WRAPPED}': save the state_dict() of the model inside"]
    if network is None:
        return file, [f"'{entry}' {why}{UNNAMED}" for entry, why in faults(None, file.state).items()]
    state = fitting(network, file.state)
    wrong = {entry: f"({shapes})" for entry, shapes in differences(network, state).items()}
    return file, [f"'{entry}' {why}" for entry, why in (wrong or faults(network, state)).items()]
