"""The messages between a site's mod and its client where the site protects each patient."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, RecordDict

from fda_flower.aggregation import Layers
from fda_flower.errors import invalid
from fda_flower.names.words import counted
from fda_flower.site.accountant import Steps, noise_of_steps
from fda_flower.site.noise import Randomness
from fda_flower.wire.protocol import MEAN_NOISE, OF_PATIENTS


def who_is_a_patient(group: str, rows: int, patients: int | None) -> str:
    """Say who is a patient, by a `group` in words, and how many there are.

    Examples
    --------
    >>> who_is_a_patient("row", 60, None), who_is_a_patient("column 'id'", 60, 6)
    ('each row is a patient: 60 rows', "patients by column 'id': 60 rows of 6 patients")
    """
    if patients is None:
        return f"each row is a patient: {counted(rows, 'row')}"
    return f"patients by {group}: {counted(rows, 'row')} of {counted(patients, 'patient')}"


PREFIX = f"{OF_PATIENTS}-"


def remove_claims(content: RecordDict) -> None:
    """Remove from a message what the site's mod alone tells its client."""
    content.pop(MEAN_NOISE, None)
    for record in content.values():
        if not isinstance(record, ConfigRecord):
            continue
        for name in [name for name in record if name == OF_PATIENTS or name.startswith(PREFIX)]:
            del record[name]


STEPS = "private-steps"
"""The record of a train reply with the steps that had noise; the site's mod takes it out."""


@dataclass(frozen=True)
class PatientPrivacy:
    """How the steps of a training protect each patient; the site's mod puts it into the message's settings.

    `clip` is ``C``, the limit for the norm of a patient's gradient. `noise` is the multiplier ``z``; at 0 it
    is chosen by `max_epsilon`, the ``ε`` of all rounds, `delta`, and the run's `rounds`, 0 if the site does
    not know them. With `open_model` the site lets a model leave without noise. The noise follows from the
    `seed` in a simulation; at a site, where it is -1, noise is the operating system's.
    """

    clip: float
    noise: float
    delta: float
    max_epsilon: float = 0.0
    rounds: int = 0
    open_model: bool = False
    seed: int = -1

    def settings(self) -> dict[str, Any]:
        """Return the entries of a message's settings."""
        return {OF_PATIENTS: True} | {f"{PREFIX}{name}": value for name, value in asdict(self).items()}

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "PatientPrivacy | None":
        """Return what a message's settings say; None if the site does not protect its patients."""
        if not config.get(OF_PATIENTS):
            return None
        return cls(**{each.name: config[f"{PREFIX}{each.name}"] for each in fields(cls)})

    def randomness(self) -> Randomness:
        """Return where noise, and the draw of patients, come from."""
        return os.urandom if self.seed < 0 else np.random.default_rng(self.seed).bytes

    def noise_for(self, rate: float, steps: int) -> float:
        """Return ``z`` for a training that draws a share of the patients in each of a round's steps.

        Raises a `ConfigError` if it is to be chosen, and the number of rounds is not known.
        """
        if self.noise:
            return self.noise
        if not self.rounds:
            remedy = "give dp-noise, such as 1.0"
            raise invalid("dp-noise", 0, remedy, "and the site does not know how many rounds there are")
        return noise_of_steps(self.max_epsilon, self.delta, rate, steps * self.rounds)


def steps_record(noise: float, rate: float, steps: int) -> Layers:
    """Return the record of a train reply with the steps that had noise."""
    return {"noise": np.array(noise), "rate": np.array(rate), "steps": np.array(steps)}


def read_steps(arrays: Layers) -> Steps:
    """Return the steps of the record."""
    return float(arrays["noise"]), float(arrays["rate"]), int(arrays["steps"])
