"""Ridge where every site is a target: each subtracts its own sums from the total, and keeps its head."""

from collections.abc import Mapping
from logging import WARNING
from statistics import mean  # exact, so that it never overflows
from typing import ClassVar, Literal

import numpy as np
from flwr.common import log

from fda_flower.aggregation import Sums, joined_head, usual_factor, widths_of, with_head, with_kinds
from fda_flower.aggregation.labels import factor_for
from fda_flower.aggregation.sums import counts_of_classes
from fda_flower.metrics import METRICS, Metric, metric_names, rare_headline
from fda_flower.names.tasks import NUMBERS, Task
from fda_flower.names.words import counted
from fda_flower.records.record import HEADLINE, JUDGED_IN, TEST_EXAMPLES, Record, judged_in
from fda_flower.strategies.base import Aggregated, ClientUpdate, Node, Round, Sources
from fda_flower.strategies.benefit import HALF, HELD_OUT, curve_of_labels, units_of
from fda_flower.strategies.evaluations import check_metrics
from fda_flower.strategies.replies import BadReplyError
from fda_flower.strategies.ridge import Ridge
from fda_flower.strategies.selection import tell_headline
from fda_flower.wire.asked.ridge import FitSiteHead, SiteFitted, SumRows
from fda_flower.wire.asked.secure_sums import MaskSums
from fda_flower.wire.protocol import TrainRequest

SITES, GAIN, INTERVAL, JUDGED_BY = "sites", "gain", "interval", "judged-by"
FEWEST_CASES = "fewest-cases"

ALONE, TOGETHER, SHARE = "alone", "with-others", "share"
"""Entries of the record if every site is a target."""


class RidgeEverySite(Ridge):
    """Ridge in which every site is a target and learns its benefit from the others.

    Each node, whatever role it reports, sends sums over its rows, receives the total, and subtracts its own.
    It then has exactly the sums of the others: the total travels in float64, and a site subtracts its sums as
    sent, in float32 or, with ``secure``, in fixed point. It fits its head as `Ridge`'s target does, and keeps
    it. The server sees sums, with ``secure`` only the total, and, if a site reports them, metrics. The
    server's model is the head of all sites together, for a site that joins without labels; no site evaluates
    it.

    The record has ``sites``: for each its ``labels``, ``test-examples``, the run's metric ``alone`` and
    ``with-others``, their difference ``gain`` with its 95% ``interval``, ``judged-by`` (the
    site's own ``test`` samples, or leave-one-out on its labels, ``held-out``), ``share``, the share of the
    others' solution in the heads that shrink it, and the metric on ``held-out`` labels and on the ones that
    ``held-out-half`` of them leave out. The headline is the mean over sites of the metrics with
    the others.

    Parameters
    ----------
    report : {"full", "none"}
        With ``"none"`` sites report no metrics.
    """

    questions = (SumRows, MaskSums, FitSiteHead)
    has_target: ClassVar[bool] = False

    report: Literal["full", "none"] = "full"

    @property
    def without_patients(self) -> str | None:  # type: ignore[override]
        """Why noise cannot protect each patient: a site would subtract its sums without the noise."""
        return "but if every site is a target, each would subtract open sums from noisy ones"

    def takes_noise(self, round: Round) -> bool:
        """Return false; see `without_patients`."""
        return False

    def check_samples(self, role: str, who: str, samples: int, batch_size: int) -> None:
        """Do nothing: a site with a single label uses the others' head."""

    def _check_units(self, node: Node) -> None:
        """Do nothing, likewise."""

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Add the sums up, and let each included site fit its head."""
        sums = self.sums(round, sources)
        totals, domains = sums.total()
        if len(domains) == 2:
            log(
                WARNING,
                "Round %d: with two sites each can compute the other's sums: add more sites",
                round.number,
            )
        paths = self.heads([node for node in round.sources if node.domain in domains])
        task = next(node.task for node in round.sources if node.domain in domains)
        default, metric = metric_names(task)[0], self._metric(round, totals[0], task)
        question = FitSiteHead(
            paths=paths,
            report=self.report,
            total=with_kinds([total.to_arrays(np.float64) for total in totals]),
            masked=self.secure,
            unlabelled=self.unlabelled is not False and paths != "logistic",
            metric=None if metric == default else metric,
        )
        request = TrainRequest(round.arrays, round.config, question=question)
        nodes = {node: request for node in round.sources if node.domain in domains}
        _, replied = round.exchange(nodes)
        self._note_sites(round, replied, metric)
        usual = usual_factor(paths) * factor_for(task == "multilabel")
        heads = [total.head(task in NUMBERS, usual) / len(totals) for total in totals]
        head = joined_head(heads, widths_of(round.model))
        return Aggregated(with_head(round.model, head[:-1].T, head[-1]))

    def _metric(self, round: Round, total: Sums, task: Task) -> str:
        """Return the run's metric, by default the one that a class asks for that is rare over all sites."""
        counts = counts_of_classes(total.rows, total.products, total.squares) if task == "classes" else None
        rare = None if counts is None or self.metric else rare_headline(counts.tolist())
        if rare is not None and HEADLINE not in round.record:
            round.record |= tell_headline(rare, "the labels of all sites")
        return self.metric or rare or metric_names(task)[0]

    def _note_sites(self, round: Round, replied: Sources, metric: str) -> None:
        """Write the sites' metrics into the record."""
        entries, sites = round.record["sources"], dict[str, Record]()
        nodes = {node.domain: node for node in round.nodes}
        for domain, update in replied.items():
            try:
                metrics = of_test(update.answer)
                sites[domain] = site_entry(entries[domain]["examples"], update.answer, METRICS[metric])
                sites[domain] |= units_of(nodes[domain])
                entries[domain] |= metrics
            except BadReplyError as error:
                del entries[domain]
                round.drop(domain, error)
        round.record |= {SITES: sites, JUDGED_IN: metric}
        round.record |= headline(sites, {domain: entries[domain] for domain in sites}, metric)

    def conclusion(self, record: Record) -> list[str]:
        """Return a line on the benefit of the others."""
        sites = [site for site in record.get(SITES, {}).values() if GAIN in site]
        if not sites:
            return ["The sites report no metrics (report=none)"] if self.report == "none" else []
        metric = METRICS[judged_in(record)]
        gain = metric.show_gain(mean(site[GAIN] for site in sites))
        ends = [site[INTERVAL] for site in sites if INTERVAL in site]
        sure = sum(low > 0 if metric.higher_is_better else high < 0 for low, high in ends)
        better = "above 0" if metric.higher_is_better else "below 0"
        known = f"the 95% interval of the gain is {better} at {sure or 'none'} of {len(sites)} sites"
        known = known if ends else "the gain has no interval"
        halved = [site for site in sites if HALF in site and HELD_OUT in site]
        means = {name: mean(site[name] for site in halved) for name in (HELD_OUT, HALF) if halved}
        where = f" on average over {counted(len(halved), 'site')}"
        return [
            f"The others bring {gain} per site on average; {known}",
            *curve_of_labels(means, record, None, where),
        ]


def of_test(answer: SiteFitted) -> Record:
    """Return a site's metrics on its test set; raise a `BadReplyError` if one is impossible."""
    if unknown := sorted(set(answer.test or {}) - set(METRICS)):
        raise BadReplyError(f"its answer has the unknown metric '{unknown[0]}'")
    number = {} if answer.test_examples is None else {TEST_EXAMPLES: answer.test_examples}
    return check_metrics({**(answer.test or {}), **number})


def site_entry(labels: int, answer: SiteFitted, metric: Metric) -> Record:
    """Return the record of a site with `labels`; raise a `BadReplyError` if its metrics are impossible."""
    entry: Record = {"labels": labels}
    if answer.test_examples is not None:
        entry[TEST_EXAMPLES] = answer.test_examples
    if answer.fewest_cases is not None:
        entry[FEWEST_CASES] = answer.fewest_cases
    alone, together = answer.alone, answer.with_others
    halves = (HELD_OUT, answer.held_out), (HALF, answer.held_out_half)
    for name, value in ((ALONE, alone), (TOGETHER, together), *halves):
        if value is not None and not metric.allows(value):
            raise BadReplyError(f"its '{name}' is {value:g}, which no {metric.title} can be")
    if together is None:
        return entry
    entry[JUDGED_BY] = "held-out" if answer.test_examples is None else "test"
    metrics = {ALONE: alone, TOGETHER: together, SHARE: answer.share}
    metrics |= {HELD_OUT: answer.held_out, HALF: answer.held_out_half}
    entry |= {name: value for name, value in metrics.items() if value is not None}
    if alone is not None:
        entry[GAIN] = together - alone
        if answer.gain_low is not None and answer.gain_high is not None:
            entry[INTERVAL] = [answer.gain_low, answer.gain_high]
    return entry


def headline(sites: Mapping[str, Record], entries: Mapping[str, Record], metric: str) -> dict[str, float]:
    """Return the means over sites of the test metrics, and of `metric` over all sites."""
    means = {
        name: mean(values)
        for name in METRICS
        if (values := [entry[name] for entry in entries.values() if name in entry])
    }
    together = [site[TOGETHER] for site in sites.values() if TOGETHER in site]
    return means | ({metric: mean(together)} if together else {})
