"""The command `fda deploy`: a federation on separate machines, and its rehearsal on this one."""

import logging
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fda_flower.cli.data import show_alike
from fda_flower.cli.options import ConfigFile, ShortHelp, with_settings
from fda_flower.cli.output import out
from fda_flower.cli.stopping import stop, this_command, when_stopped
from fda_flower.datasets.registry import DATASETS
from fda_flower.metrics import METRICS
from fda_flower.records.record import Record, round_line, source_weight, value_of
from fda_flower.runs.config import RunConfig
from fda_flower.runs.request import Request

if TYPE_CHECKING:
    from fda_flower.reporting import Table

ROUNDS = 2
"""Rounds of a rehearsal, where the method takes any number."""

app = typer.Typer(
    no_args_is_help=True,
    help="Certificates and keys for a federation, its rehearsal, and the log of a site.",
)


@app.command(
    epilog="Example: `fda deploy certificates --host fl.example.org --host 192.0.2.7 --output certificates`"
)
def certificates(
    host: Annotated[
        list[str], typer.Option(help="DNS name or IP address by which sites reach the server; repeatable.")
    ],
    output: Annotated[Path, typer.Option(help="Folder to write to.")],
) -> None:
    """Make a server's certificate and key, and a CA if the folder has none.

    Give `ca.crt` to every site. The other files stay on the server; keep `ca.key` elsewhere if you can.
    """
    from fda_flower.deployment import make_certificates

    made = make_certificates(output, host)
    files = [made.ca, made.ca_key, made.server, made.server_key]
    out.result({"files": files}, *files)


@app.command(epilog="Example: `fda deploy key source-1 --output keys`")
def key(
    name: Annotated[str, typer.Argument(help="The node's name.")],
    output: Annotated[Path, typer.Option(help="Folder to write to.")],
) -> None:
    """Make a node's key pair: NAME stays on the node; register NAME.pub with the SuperLink.

    The last line is for the other sites' `secure-with`.
    """
    from fda_flower.deployment import make_key
    from fda_flower.wire.identity import Identity

    files = make_key(output, name)
    signs = f"{name}:{Identity.read(files[0]).fingerprint}"
    out.result({"files": files, "signs": signs}, *files, signs)


@app.command(name="app-hash", epilog="Example: `fda deploy app-hash`")
def print_app_hash(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder of another Flower app; by default what `fda run` submits.")
    ] = None,
) -> None:
    """Print an app's name for the rule `apps` of a site: the SHA-256 of its bundle."""
    from fda_flower.deployment import app_hash

    name = app_hash(folder)
    out.result({"app": name}, name)


@app.command(
    cls=ShortHelp,
    epilog="Example: `fda deploy check node.toml --dataset table --dataset-option domains=north,west,south`",
)
@with_settings(shown={"dataset": "found by the content of the node's data-dir"})
def check(
    settings: dict[str, Any],
    node: Annotated[Path, typer.Argument(help="The node configuration.")] = Path("node.toml"),
    config: ConfigFile = None,
) -> None:
    """Check a site's node configuration and data, as its node reads them in a run with these settings.

    Nothing is sent. The exit code is 1 if the node could not take part.
    """
    from fda_flower.cli.data import show_data
    from fda_flower.client_app import at_node, check_patients
    from fda_flower.deployment import ask_node, choices_at, gaps_of_noise, read_node, spent_budget
    from fda_flower.own_data.check import OWN, find_dataset
    from fda_flower.site.secure_with import identity_of

    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    site = read_node(node)
    if site.data_dir is not None:
        settings["data_dir"] = site.data_dir
        settings["dataset"] = settings.get("dataset") or find_dataset(Path(site.data_dir).expanduser())
    run, name = at_node(RunConfig(**settings), site)
    data = show_data(run.data, name) if run.dataset in OWN and run.data_dir is not None else {}
    answer = dict(ask_node(run, site).info)
    spent = spent_budget(run, site)
    choices = choices_at(site, run.dataset)
    identity = identity_of(site)
    signs = None if identity is None else f"{name}:{identity.fingerprint}"
    who = check_patients(run, name) if run.data.patients else None
    lines = [
        f"{name} can take part",
        *([] if signs is None else [f"It signs its masks as {signs}"]),
        *([] if who is None else [f"Noise protects each patient; {who}"]),
        *([] if spent is None else [f"It has spent an ε of {spent:.4g} so far"]),
        *gaps_of_noise(site),
        *(f"A run may choose of {what}: {', '.join(names)}" for what, names in choices.items()),
    ]
    found = {"domain": name, "data": data, "answer": answer, "patients": who, "epsilon": spent}
    out.result({**found, "choices": choices, "signs": signs}, *lines)


@app.command(epilog="Example: `fda deploy log /srv/fl-state`")
def log(
    state_dir: Annotated[Path, typer.Argument(help="The state-dir of a site's node configuration.")],
) -> None:
    """Show what a site has sent, in total by run, message and record, and what it has refused."""
    from fda_flower.reporting import Table
    from fda_flower.site.log import read_log, totals

    lines = read_log(state_dir)
    domains = ", ".join(sorted({line["domain"] for line in lines}))
    sent = totals(lines)
    for run in dict.fromkeys(each["run"] for each in sent):
        rows = [
            [each["message"], each["record"], *(f"{each[name]:,}" for name in ("replies", "bytes", "most"))]
            for each in sent
            if each["run"] == run
        ]
        header = ["Message", "Record", "Replies", "Bytes", "Largest"]
        out.table(Table(header, rows, f"Sent by {domains} in run {run}"), ["Record"])
    kinds = {kind: [line for line in lines if kind in line] for kind in ("refused", "failed")}
    for kind, of_kind in kinds.items():
        for line in of_kind:
            first = line[kind].strip().partition("\n")[0]
            out.text(
                f"{kind.capitalize()} at {line['time']}, {line['message']} of run {line['run']}: {first}"
            )
    counts = ", ".join(f"{len(of_kind)} {kind}" for kind, of_kind in kinds.items())
    size = sum(each["bytes"] for each in sent)
    out.result({"sent": sent, **kinds}, f"{domains}: {size:,} bytes sent in all; {counts}")


@app.command(epilog="Example: `fda deploy recount /srv/fl-state`")
def recount(
    state_dir: Annotated[Path, typer.Argument(help="The state-dir of a site's node configuration.")],
) -> None:
    """Count as spent all that a site's ledger or its journal knows, after one of them was lost or restored.

    If neither is left of a site that has sent noise, it has spent any budget.
    """
    from flwr.app import RecordDict

    from fda_flower.site.ledger import Ledger, ledgers_in

    added = {
        ledger.name: Ledger(ledger, RecordDict()).recount(journal)
        for ledger, journal in ledgers_in(state_dir)
    }
    out.result({"added": added}, *(f"{name}: {count} charges added" for name, count in added.items()))


@app.command(cls=ShortHelp, epilog="Example: `fda deploy rehearse --output runs/rehearsal`")
@with_settings(shown={"sources": "2, or the data set's", "rounds": str(ROUNDS)})
def rehearse(
    settings: dict[str, Any],
    output: Annotated[Path, typer.Option(help="Folder to write to.")],
    config: ConfigFile = None,
) -> None:
    """Rehearse a federation on this machine: a SuperLink with TLS and authentication, and its SuperNodes.

    All processes end with the command, even after an error. OUTPUT holds the run and each process's log.
    """
    request = Request(**settings)
    dataset = DATASETS.get(request.dataset)
    if config is None and request.sources is None and dataset and dataset.domains == ():
        request = replace(request, sources=2)
    wanted = RunConfig.of(request)
    if "rounds" not in settings and wanted.entry.rounds is None:
        wanted = RunConfig.of(replace(request, rounds=ROUNDS))
    done, before = 0, None
    when_stopped(
        lambda: (
            f"Stopped after round {done} of {wanted.all_rounds}; all processes have ended. {output} holds "
            f"the finished rounds; start again with another --output: {this_command()}"
        )
    )
    from rich.markup import escape

    from fda_flower.deployment import rehearse as run_rehearsal
    from fda_flower.reporting import sites_in, sites_note, sites_table
    from fda_flower.reporting.alike import alike_notes, described_in

    logging.getLogger("flwr").setLevel(logging.WARNING)
    signal.signal(signal.SIGHUP, stop)
    with out.console.status("") as status:

        def on_step(step: str) -> None:
            out.text(step)
            status.update(escape(step))

        def on_round(record: Record) -> None:
            nonlocal done, before
            on_step(round_line(record, wanted.all_rounds, wanted.headline_of([record]), before))
            done, before = record["round"], record

        for line in wanted.remarks:
            on_step(line)
        history = run_rehearsal(wanted, output, on_step=on_step, on_round=on_round)
    out.table(_table(wanted, history), ["Trouble"])
    if sites_in(history):
        out.table(sites_table(history))
        if note := sites_note(history):
            out.text(note)
    show_alike(described := described_in(history))
    result = {"folder": output, "rounds": len(history), "history": history}
    out.result(result, f"Written to {output}", *alike_notes(described))


def _table(config: RunConfig, history: list[Record]) -> "Table":
    """Return a table with one row per round."""
    from fda_flower.reporting import Table

    def beta(record: Record, name: str) -> float | None:
        return source_weight(record["sources"].get(name, {}))

    metric, rows = METRICS[config.headline], []
    names = config.data.source_names
    if all(beta(record, name) is None for record in history for name in names):
        names = []  # the method weighs no sources
    for record in history:
        value = value_of(record, config.headline_of([record]))
        betas = [beta(record, name) for name in names]
        trouble = [record["held"], *(f"{drop['domain']}: {drop['reason']}" for drop in record["dropped"])]
        text = "-" if value is None else metric.show(value).removesuffix("%")
        weights = ("-" if each is None else f"{each:.2f}" for each in betas)
        rows.append([record["round"], text, *weights, "; ".join(filter(None, trouble))])
    label = metric.label[0].upper() + metric.label[1:]
    title = f"{config.entry.label} on {config.dataset}, over SuperLink and SuperNodes"
    return Table(["Round", label, *(f"β of {name}" for name in names), "Trouble"], rows, title)
