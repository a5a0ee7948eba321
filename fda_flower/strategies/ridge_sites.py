"""Ridge where every site is a target: each subtracts its own sums from the total, and keeps its head."""

from collections.abc import Mapping
from functools import partial
from logging import WARNING
from typing import ClassVar, Literal

import numpy as np
from flwr.common import log

from fda_flower.aggregation import Columns, Sums, shape_of_head, with_head
from fda_flower.errors import invalid
from fda_flower.metrics import METRICS, Metric
from fda_flower.records.record import TEST_EXAMPLES, Record
from fda_flower.strategies.base import (
    Aggregated,
    BadReplyError,
    ClientUpdate,
    Round,
    Sources,
    TrainRequest,
)
from fda_flower.strategies.replies import EVALUATED
from fda_flower.strategies.ridge import PATHS, SHARE, Ridge, in_common_columns, read_open
from fda_flower.wire import protocol
from fda_flower.wire.protocol import to_record

TOTAL, REPORT = "total", "report"
ALONE, TOGETHER, LOW, HIGH = "alone", "with-others", "gain-low", "gain-high"
"""Names on the wire: the record with the total of all sites, the setting that says whether a site reports
figures, and the figures: without and with the others, and the interval of the difference."""

KEPT = "kept"
SITES, GAIN, INTERVAL, JUDGED_BY = "sites", "gain", "interval", "judged-by"
"""Metric of a reply that is 1 if the site has kept its head, else 0; and entries of the record."""

OF_SITE = "serve it with fda_flower.clients.RidgeSite"


class RidgeEverySite(Ridge):
    """Ridge in which every site is a target and learns its benefit from the others.

    All nodes run `fda_flower.clients.RidgeSite`, whatever role they report. Each sends sums over its rows,
    receives the total, and subtracts its own. It then has exactly the sums of the others: the total travels
    in float64, and a site subtracts its float32 sums as sent. It fits its head as `Ridge`'s target does, and
    keeps it. The server sees sums and, if a site reports them, figures. The server's model is the head of all
    sites together, for a site that joins without labels; no site evaluates it.

    The record has ``sites``: for each its ``labels``, ``test-examples``, the accuracy (for a regression R²)
    ``alone`` and ``with-others``, their difference ``gain`` with its 95% ``interval``, ``judged-by`` (the
    site's own ``test`` samples, or leave-one-out on its labels, ``held-out``), and ``share``, the share of
    the others' solution in the heads that shrink it. The headline is the mean over sites of the figures with
    the others.

    Parameters
    ----------
    report : {"full", "none"}
        With ``"none"`` sites report no figures.
    """

    has_target: ClassVar[bool] = False

    report: Literal["full", "none"] = "full"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.per_source:
            why = "but if every site is a target, none sees another's head"
            raise invalid("per_source", True, "leave it out", why)
        if self.secure:
            why = "but if every site is a target, sites do not mask their sums"
            raise invalid("secure", True, "leave it out, or name one target", why)

    @property
    def without_patients(self) -> str | None:
        """Why noise cannot protect each patient: a site would subtract its sums without the noise."""
        return "but if every site is a target, each would subtract open sums from noisy ones"

    def check_samples(self, role: str, who: str, samples: int, batch_size: int) -> None:
        """Do nothing: a site with a single label uses the others' head."""

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Add the sums up, and let each included site fit its head."""
        outputs, features = shape_of_head(round.model)
        sources, columns = in_common_columns(sources, form := (features + 1, outputs))
        read = partial(read_open, sources, form)
        most = len(sources)
        # Check each alone, so that the others' sums are valid whichever site subtracts its own.
        domains = self.usable(round, list(sources), lambda domain: read(domain).check_definite(most))
        total = Sums.total(map(read, domains), *form)
        if len(domains) == 2:
            log(
                WARNING,
                "Round %d: with two sites each can compute the other's sums: add more sites",
                round.number,
            )
        request = self._request(round, total, columns)
        nodes = {node: request for node in round.sources if node.domain in domains}
        _, replied = round.exchange(nodes)
        regression = any(node.info.get(protocol.REGRESSION) for node in nodes)
        self._note_sites(round, replied, "r2" if regression else "accuracy")
        head = total.head(scaled=regression)
        if columns:  # for a site whose columns have the mean and deviation of all
            head[:-1] /= np.sqrt(features)
        return Aggregated(with_head(round.model, head[:-1].T, head[-1]))

    def _note_sites(self, round: Round, replied: Sources, metric: str) -> None:
        """Write the sites' figures into the record."""
        entries, sites = round.record["sources"], dict[str, Record]()
        for domain in replied:
            try:
                sites[domain] = site_entry(entries[domain], METRICS[metric])
            except BadReplyError as error:
                del entries[domain]
                round.drop(domain, error)
        round.record[SITES] = sites
        round.record |= headline(sites, {domain: entries[domain] for domain in sites}, metric)

    def _request(self, round: Round, total: Sums, columns: Columns | None) -> TrainRequest:
        measured = {name: name for name in (ALONE, TOGETHER, LOW, HIGH, SHARE)}
        arrays = total.to_arrays(np.float64) | (columns.to_arrays() if columns else {})
        return TrainRequest(round.arrays, round.config).adding(
            config={PATHS: self.paths, REPORT: self.report},
            records={TOTAL: to_record(arrays)},
            requires={KEPT: OF_SITE},
            measures={**measured, **EVALUATED},
        )

    def conclusion(self, record: Record) -> list[str]:
        """Return a line on the benefit of the others."""
        sites = [site for site in record.get(SITES, {}).values() if GAIN in site]
        if not sites:
            return []
        metric = METRICS["r2" if "r2" in record else "accuracy"]
        mean = metric.scaled(float(np.mean([site[GAIN] for site in sites])))
        sure = sum(site[INTERVAL][0] > 0 for site in sites if INTERVAL in site)
        unit = " points" if metric.percent else f" of {metric.title}"
        return [
            f"The others bring {mean:+.{metric.decimals}f}{unit} per site on average; the 95% interval of "
            f"the gain is above 0 at {sure or 'none'} of {len(sites)} sites"
        ]


def site_entry(entry: Record, metric: Metric) -> Record:
    """Return the record of a site, and remove it from the entry of its reply.

    Raises a `BadReplyError` if its figures are impossible.
    """
    found: Record = {"labels": entry["examples"]}
    if TEST_EXAMPLES in entry:
        found[TEST_EXAMPLES] = entry[TEST_EXAMPLES]
    told = {name: entry.pop(name) for name in (ALONE, TOGETHER, LOW, HIGH, SHARE) if name in entry}
    for name in (ALONE, TOGETHER):
        if name in told and not metric.allows(told[name]):
            raise BadReplyError(f"its metric '{name}' is {told[name]:g}, which no {metric.title} can be")
    if TOGETHER not in told:
        return found
    found[JUDGED_BY] = "test" if TEST_EXAMPLES in entry else "held-out"
    found |= {name: told[name] for name in (ALONE, TOGETHER, SHARE) if name in told}
    if ALONE in told:
        found[GAIN] = told[TOGETHER] - told[ALONE]
        if LOW in told and HIGH in told:
            found[INTERVAL] = [told[LOW], told[HIGH]]
    return found


def headline(sites: Mapping[str, Record], entries: Mapping[str, Record], metric: str) -> dict[str, float]:
    """Return the means over sites of the test metrics, and of `metric` over all sites."""
    found = {
        name: float(np.mean(values))
        for name in METRICS
        if (values := [entry[name] for entry in entries.values() if name in entry])
    }
    together = [site[TOGETHER] for site in sites.values() if TOGETHER in site]
    return found | ({metric: float(np.mean(together))} if together else {})
