"""All uses of Flower's private API, but for a SuperNode's (`fda_flower.wire.border`).

A new version of Flower can break only these two modules.

`fda_flower.wire.private` lists the names, and what fails without them. If one is missing that every run
needs, the import of this module raises a `RunError` that says so; others are imported where they are used.
"""

import hashlib
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fda_flower.errors import ConfigError, RunError
from fda_flower.wire import private

try:
    from flwr.app.message import make_message
    from flwr.clientapp.typing import ClientAppCallable as ClientAppCallable
    from flwr.clientapp.typing import Mod as Mod
    from flwr.common.constant import ErrorCode
    from flwr.supercore.logger import console_handler as console_handler
    from flwr.supercore.run import Run as Run
    from flwr.supercore.task_identity import TaskIdentity
finally:
    private.check([private.MESSAGES])

if TYPE_CHECKING:
    from flwr.serverapp import Grid

_ids = count(1)

INFLATE = "inflate_object_from_contents"
"""Flower's function that assembles a message from its parts."""

MOST_COPIES = 64
"""Largest ratio of a message's arrays to its parts, since one part may be used several times."""

WITHOUT_EVALUATION = ("No evaluate function registered with name 'default'", "does not implement `evaluate`")
"""Texts of Flower's errors for a client app, or an older client, without an evaluation function."""

WITHOUT_ANSWER = ("No evaluate function registered with name '{}'", "has no answer to '{}'")
"""Texts of the errors of a client app, or of a client, that does not answer the question of an evaluation."""

AWAY = {ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.NODE_UNAVAILABLE}
"""Flower's errors in the place of a reply from a node that is not there; it may come back."""

EXPIRED = "Message Unavailable"
"""Text of Flower's errors, which the older API raises without their codes, for a reply that came too late."""

NO_HEARTBEAT = "no heartbeat"
"""Why a node is away: its SuperNode has stopped, or cannot reach the server."""

AnyRecord = TypeVar("AnyRecord", ArrayRecord, ConfigRecord, MetricRecord, RecordDict)


@contextmanager
def task_identity() -> Iterator[None]:
    """Allow this process to make messages outside a Flower run; inside one, do nothing."""
    if TaskIdentity._run_id is not None:
        yield
        return
    fields = ("_task_id", "_run_id", "_node_id")
    before = {field: getattr(TaskIdentity, field) for field in fields}
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
    try:
        yield
    finally:
        for field, value in before.items():
            setattr(TaskIdentity, field, value)


def filled(record: AnyRecord, entries: Mapping[str, Any]) -> AnyRecord:
    """Add entries to a new record, with Flower's checks, in a tenth of the time."""
    inside: dict[str, Any] = record.__dict__
    check_key, check_value = inside["_check_key_fn"], inside["_check_value_fn"]
    for key, value in entries.items():
        check_key(key)
        check_value(value)
        inside["_data"][key] = value
    return record


def entries_of(record: RecordDict | ArrayRecord | ConfigRecord | MetricRecord) -> dict[str, Any]:
    """Return the entries of a record themselves, to read or clear them: Flower's own view takes long."""
    entries: dict[str, Any] = record.__dict__["_data"]
    return entries


def empty_run() -> Run:
    """Return a run for a grid outside Flower."""
    return Run.create_empty(run_id=1)


def numbered(messages: Iterable[Message]) -> list[Message]:
    """Give each message an id, as a SuperLink does."""
    sent = list(messages)
    for message in sent:
        message.metadata.__dict__["_message_id"] = str(next(_ids))
    return sent


def error_reply(message: Message, reason: str) -> Message:
    """Return the reply of a client that raised an exception."""
    return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)


DIRECT_CAUSE = "The above exception was the direct cause"
PLACE = re.compile(r'^ *File "(?P<path>.*)", line (?P<line>\d+)', re.MULTILINE)


def cause_of(reason: str) -> str:
    r"""Return the error and its place from a reason that contains a traceback, else the reason unchanged.

    In a simulation by Ray the reason is a traceback with process numbers that differ between nodes.

    Examples
    --------
    >>> lines = ['  File "/home/me/app/client_app.py", line 28, in train', "    rate = config['lr']"]
    >>> lines += ['  File "/usr/site-packages/flwr/app.py", line 5, in __getitem__', "    return data[item]"]
    >>> cause_of("\n".join([*lines, "KeyError: 'lr'"]))
    "KeyError: 'lr' (client_app.py, line 28)"
    """
    first = reason.partition(DIRECT_CAUSE)[0]
    places = list(PLACE.finditer(first))
    if not places:
        return reason
    rest = first[places[-1].end() :].splitlines()[1:]
    error = " ".join(line.strip() for line in rest if line.strip() and not line.startswith("    "))
    own = [place for place in places if "site-packages" not in place["path"]]
    where = (own or places)[-1]
    name = where["path"].replace("\\", "/").rpartition("/")[2]
    return f"{error or 'an error'} ({name}, line {where['line']})"


def reason_of(error: Error) -> str:
    """Return what an error reply says; `NO_HEARTBEAT` for the SuperLink's own of a node that is away."""
    return NO_HEARTBEAT if error.code == ErrorCode.NODE_UNAVAILABLE else cause_of(str(error.reason or ""))


def lacks_evaluation(app: ClientApp) -> bool:
    """Return whether an app has a train function but none to evaluate; False if its code cannot be read.

    Examples
    --------
    >>> app = ClientApp()
    >>> _ = app.train()(print)
    >>> lacks_evaluation(app), lacks_evaluation(ClientApp())
    (True, False)
    """
    registered = getattr(app, "_registered_funcs", {})
    return "train.default" in registered and not any(name.startswith("evaluate.") for name in registered)


def failed(metadata: Any, reason: str) -> Message:
    """Return an error in place of a reply that arrived with this metadata."""
    return make_message(metadata=metadata, error=Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason))


def emptied(metadata: Any) -> Message:
    """Return a message with this metadata, without records."""
    return make_message(metadata=metadata, content=RecordDict())


def is_simulated_by_flower() -> bool:
    """Return whether this process is a Ray actor; a server cannot fake that."""
    ray = sys.modules.get("ray")
    return ray is not None and ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None


def app_digest(folder: Path) -> str:
    """Return the SHA-256 of an app's bundle as hexadecimal digits; see `bundle_of`."""
    return hashlib.sha256(bundle_of(folder)).hexdigest()


def bundle_of(folder: Path) -> bytes:
    """Return the bundle that ``flwr run`` makes of an app's folder.

    Raises a `ConfigError` if the folder has no Flower app.
    """
    private.check([private.APPS])
    from flwr.cli.build import build_fab_from_disk

    try:
        return build_fab_from_disk(folder)
    except (OSError, ValueError) as error:
        raise ConfigError(f"'{folder}' is no Flower app: {error}", thing=str(folder)) from error


def node_config(text: str | None) -> dict[str, Any]:
    """Parse a node configuration as ``flower-supernode --node-config`` does."""
    from flwr.common.config import parse_config_args

    return parse_config_args(None if text is None else [text])


def pull_sooner() -> None:
    """Retry a missing part of a message after 0.01 seconds, backing off to 1, in this whole process.

    Flower backs off from 1 second to 10. If its code has another structure, it is left unchanged.
    """
    from flwr.supercore.inflatable import inflatable_utils

    sooner = {"initial_backoff": 0.01, "backoff_cap": 1.0}
    for name in ("pull_objects", "pull_and_inflate_object_from_tree"):
        given = getattr(getattr(inflatable_utils, name, None), "__kwdefaults__", None) or {}
        given |= {key: seconds for key, seconds in sooner.items() if key in given}


def survive_bad_replies(grid: "Grid") -> None:
    """Make a grid over a SuperLink return an error reply in place of a reply it cannot assemble.

    Flower's grid raises instead, so one node would end the run. If the grid's code has another structure, it
    is left unchanged.
    """
    parts = vars(sys.modules[type(grid).__module__])
    theirs = parts.get(INFLATE)
    if theirs is None or getattr(theirs, "survives", False):
        return

    def inflated(object_id: str, contents: dict[str, bytes], **options: Any) -> Any:
        head = contents.get(object_id, b"")
        try:
            check_copies(contents)
            message = theirs(object_id, contents, **options)
            if message.has_error() or isinstance(message.content, RecordDict):
                return message
            reason = f"its content is {type(message.content).__name__}, expected records"
        except Exception as error:  # a malformed reply must not end the run
            reason = f"it cannot be assembled: {error!r}"
        return failed(_metadata_in(head), reason)

    inflated.survives = True  # type: ignore[attr-defined]
    parts[INFLATE] = inflated


def check_copies(contents: Mapping[str, bytes]) -> None:
    """Raise a `ValueError` if the arrays would take far more memory than the parts that were sent."""
    from flwr.supercore.inflatable import inflatable_object as flower

    copied = 0
    for part in contents.values():
        kind, children, _ = flower.get_object_head_values_from_object_content(part)
        if kind == Array.__qualname__:
            places = json.loads(flower.get_object_body(part, Array)).get("arraychunk_ids", [])
            copied += sum(len(contents[children[place]]) for place in places)
    sent = sum(map(len, contents.values()))
    if copied > MOST_COPIES * sent:
        raise ValueError(f"its arrays have {copied} bytes, but only {sent} were sent")


def _metadata_in(head: bytes) -> Any:
    """Return the metadata in the first part of a message, empty if unreadable."""
    from flwr.common.serde import metadata_from_proto  # type: ignore[attr-defined]
    from flwr.proto.message_pb2 import Message as MessageProto
    from flwr.proto.message_pb2 import Metadata
    from flwr.supercore.inflatable.inflatable_object import get_object_body

    try:
        return metadata_from_proto(MessageProto.FromString(get_object_body(head, Message)).metadata)
    except Exception:
        return metadata_from_proto(Metadata(message_type="query"))


def names_of(grid: "Grid") -> dict[int, str]:
    """Return the names of a SuperLink's registered nodes, by id; a simulation has none."""
    return {node.node_id: node.name for node in grid.get_nodes() if node.name}


def keys_of(grid: "Grid") -> dict[int, str]:
    """Return the fingerprints of the keys of registered nodes by id, as ``ssh-keygen -l`` prints them."""
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    from fda_flower.wire.identity import fingerprint_of

    return {
        node.node_id: fingerprint_of(load_pem_public_key(node.public_key))
        for node in grid.get_nodes()
        if node.name and node.public_key
    }


def is_deployed(grid: "Grid") -> bool:
    """Return whether the nodes of a grid are SuperNodes rather than simulated."""
    return getattr(grid, "_runtime_client", None) is not None


IN_MEMORY = "InMemoryGrid"
"""Flower's grid in its simulation."""

SIMULATED_SECONDS = 10.0
"""Time in which the nodes of Flower's simulation connect, which registers them as the server starts."""


def seconds_to_connect(grid: "Grid") -> float:
    """Return how long nodes of a grid may take to connect, where no limit is given.

    For ever, as Flower waits for SuperNodes; in its simulation, which has all nodes at once, only a moment.
    A grid of this package says it by an attribute of this name.
    """
    own: float | None = getattr(grid, "seconds_to_connect", None)
    if own is not None:
        return own
    return SIMULATED_SECONDS if type(grid).__name__ == IN_MEMORY else math.inf


def is_simulated(proxy: object) -> bool:
    """Return whether a client of the older API belongs to one of Flower's simulations."""
    grid = getattr(proxy, "grid", None)
    of_ray = type(proxy).__module__.startswith("flwr.simulation")
    return of_ray if grid is None else seconds_to_connect(grid) < math.inf


def check_grid(grid: "Grid") -> None:
    """Raise a `RunError` if Flower lacks a name that this package needs for a run over this grid."""
    if type(grid).__module__.startswith("flwr."):
        simulated, deployed = type(grid).__name__ == IN_MEMORY, is_deployed(grid)
        parts = {private.SIMULATION: not deployed, private.SUPERLINK: not simulated}
        private.check(part for part, needed in parts.items() if needed)


def log_writer(grid: "Grid") -> Callable[[str], None]:
    """Return a function that appends text atomically to a run's log on the SuperLink.

    Raises
    ------
    RunError
        If the grid belongs to a simulation, which has no such log.
    """
    client: Any = getattr(grid, "_runtime_client", None)
    if client is None:
        raise RunError(
            "this SuperLink simulates its nodes: choose the engine ray, or another connection",
            thing="SuperLink",
        )

    from flwr.proto.log_pb2 import PushLogsRequest
    from flwr.proto.node_pb2 import Node

    def write(text: str) -> None:
        client.PushLogs(PushLogsRequest(node=Node(node_id=0), run_id=grid.run.run_id, logs=[text]))

    return write


def task() -> dict[str, int]:
    """Return the task, run and node that this process works for."""
    return {name: getattr(TaskIdentity, name) for name in ("task_id", "run_id", "node_id")}


def set_task(numbers: dict[str, int]) -> None:
    """Set the task, run and node of this process, from `task` in another process."""
    for name, number in numbers.items():
        setattr(TaskIdentity, name, number)


def message_to_parts(message: Message) -> tuple[dict[str, Any], list[bytes]]:
    """Return a message's identifiers as JSON values, and its parts as Flower sends them."""
    from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, no_object_id_recompute

    with no_object_id_recompute():
        objects = get_all_nested_objects(message)
        parts = [each.deflate() for each in objects.values()]
    return {"message": message.metadata.message_id, "objects": list(objects)}, parts


def message_from_parts(header: dict[str, Any], parts: Sequence[bytes]) -> Message:
    """Reassemble a message from the result of `message_to_parts`."""
    from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

    contents = dict(zip(header["objects"], parts, strict=True))
    # The message is the last object, after everything it contains.
    message = cast(Message, inflate_object_from_contents(header["objects"][-1], contents))
    message.metadata.__dict__["_message_id"] = header["message"]
    return message


def context_to_bytes(context: Context) -> bytes:
    """Serialise a context as Flower does."""
    from flwr.common.serde import context_to_proto

    data: bytes = context_to_proto(context).SerializeToString()
    return data


def context_from_bytes(data: bytes) -> Context:
    """Parse a context from `context_to_bytes`."""
    from flwr.common.serde import context_from_proto
    from flwr.proto.message_pb2 import Context as ContextProto

    return context_from_proto(ContextProto.FromString(data))


def combine_shares(shares: list[bytes]) -> bytes:
    """Return the secret that has these of Shamir's shares."""
    from flwr.common.secure_aggregation.crypto import shamir

    return shamir.combine_shares(shares)


def create_shares(secret: bytes, threshold: int, number: int) -> list[bytes]:
    """Return a number of Shamir's shares of a secret, which follows from any `threshold` ones."""
    from flwr.common.secure_aggregation.crypto import shamir

    return shamir.create_shares(secret, threshold, number)


def encrypt(key: bytes, text: bytes) -> bytes:
    """Return a text encrypted with a key (Fernet)."""
    from flwr.common.secure_aggregation.crypto import symmetric_encryption

    return symmetric_encryption.encrypt(key, text)


def decrypt(key: bytes, token: bytes) -> bytes:
    """Return the text that `encrypt` has been given; raise an `InvalidToken` if the key is another."""
    from flwr.common.secure_aggregation.crypto import symmetric_encryption

    return symmetric_encryption.decrypt(key, token)


def generate_shared_key(own: Any, other: Any) -> bytes:
    """Return the key that two sides agree on, from one's private key and the other's public one."""
    from flwr.common.secure_aggregation.crypto import symmetric_encryption

    return symmetric_encryption.generate_shared_key(own, other)
