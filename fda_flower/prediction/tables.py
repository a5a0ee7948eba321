"""Predictions as a table."""

import csv
import io
from pathlib import Path
from typing import Any

from fda_flower.errors import ConfigError
from fda_flower.files import write_atomically
from fda_flower.prediction.inputs import NewSamples
from fda_flower.prediction.model import LoadedModel, probabilities


def write_predictions(model: LoadedModel, new: NewSamples, path: Path) -> None:
    """Write a CSV file with a row for each sample: what names it, the prediction, and the probabilities.

    The columns are those of `NewSamples.names`; ``prediction``; and for each class ``p(CLASS)``. A regression
    of several numbers has ``prediction-1`` and so on.

    Raises
    ------
    ConfigError
        If the file cannot be written, or a column that is kept has the name of one of these.
    """
    outputs = model.outputs(new.samples, new.drawing)
    predicted = model.predictions(outputs)
    found: dict[str, Any] = {}
    if model.about.regression:
        numbers = predicted.reshape(len(predicted), -1).T
        ends = [f"-{i}" for i in range(1, len(numbers) + 1)] if len(numbers) > 1 else [""]
        found |= {
            f"prediction{end}": [f"{n:.7g}" for n in column]
            for end, column in zip(ends, numbers, strict=True)
        }
    else:
        found["prediction"] = predicted.tolist()
        found |= {
            f"p({name})": [f"{p:.6g}" for p in column]
            for name, column in zip(model.classes_.tolist(), probabilities(outputs).T, strict=True)
        }
    if twice := sorted(found.keys() & new.names.keys()):
        raise ConfigError(
            f"column {', '.join(twice)} is to be kept, but the predictions have it too: rename it in the file"
        )
    columns = {**new.names, **found}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.getvalue().encode())
    except OSError as error:
        raise ConfigError(f"'{path}' cannot be written ({error}): choose another --output") from error
