"""The private names of Flower in `wire.internals` and `wire.border`, by what fails without them."""

from collections.abc import Iterable
from importlib.metadata import version
from inspect import Parameter, signature
from pkgutil import resolve_name
from typing import Any

from fda_flower.errors import RunError

TESTED = "1.40, 1.41 and 1.42"
"""Versions of Flower that have passed ``make canary``; the table in ``docs/install.md`` has the same."""

MESSAGES, MASKS, GATE = "every run", "masked sums (secure=true)", "the gate of fda-supernode"
APPS, RESIDENT, SUPERLINK = "the digest of an app", "a resident worker", "a run on a SuperLink"
SIMULATION, OLDER = "a simulation by flwr run", "a simulation with Flower's older API"
SPEED = "short waits"

NAMES = {
    MESSAGES: """
        flwr.app:ArrayRecord()._check_key_fn
        flwr.app:ArrayRecord()._check_value_fn
        flwr.app:ArrayRecord()._data
        flwr.app:Metadata()._message_id
        flwr.app.message:make_message(metadata,content,error)
        flwr.clientapp:ClientApp()._registered_funcs
        flwr.clientapp.typing:ClientAppCallable
        flwr.clientapp.typing:Mod
        flwr.common.constant:ErrorCode.CLIENT_APP_RAISED_EXCEPTION
        flwr.common.constant:ErrorCode.MESSAGE_UNAVAILABLE
        flwr.common.constant:ErrorCode.NODE_UNAVAILABLE
        flwr.common.constant:ErrorCode.REPLY_MESSAGE_UNAVAILABLE
        flwr.supercore.logger:console_handler
        flwr.supercore.run:Run.create_empty(run_id)
        flwr.supercore.task_identity:TaskIdentity._task_id
        flwr.supercore.task_identity:TaskIdentity._run_id
        flwr.supercore.task_identity:TaskIdentity._node_id
    """,
    MASKS: """
        flwr.common.secure_aggregation.crypto.shamir:combine_shares
        flwr.common.secure_aggregation.crypto.shamir:create_shares
        flwr.common.secure_aggregation.crypto.symmetric_encryption:decrypt
        flwr.common.secure_aggregation.crypto.symmetric_encryption:encrypt
        flwr.common.secure_aggregation.crypto.symmetric_encryption:generate_shared_key
    """,
    GATE: """
        flwr.app:Array.__qualname__
        flwr.app:Message.deflate
        flwr.app:Message.object_id
        flwr.common.config:get_fused_config_from_fab
        flwr.common.config:parse_config_args
        flwr.proto.message_pb2:ObjectTree().object_id
        flwr.supercore.fab:Fab(hash_str,content)
        flwr.supercore.inflatable.inflatable_object:get_all_nested_objects
        flwr.supercore.inflatable.inflatable_object:get_object_body
        flwr.supercore.inflatable.inflatable_object:get_object_head_values_from_object_content
        flwr.supercore.inflatable.inflatable_object:get_object_tree
        flwr.supercore.inflatable.inflatable_object:iterate_object_tree
        flwr.supercore.inflatable.inflatable_object:no_object_id_recompute
        flwr.supercore.inflatable.inflatable_utils:inflate_object_from_contents
        flwr.supercore.object_store:ObjectStore.get
        flwr.supercore.object_store:ObjectStore.preregister
        flwr.supercore.object_store:ObjectStore.put
        flwr.supercore.run:Run(fab_hash)
        flwr.supernode.cli:flower_supernode
        flwr.supernode.nodestate:NodeState.get_node_id
        flwr.supernode.start_client_internal:_insert_message(msg,state,store|reply_to)
        flwr.supernode.start_client_internal:_pull_and_store_message(state,object_store,node_config,receive)
        flwr.supernode.start_client_internal:_pull_and_store_message(get_run,get_fab,confirm_message_received)
        flwr.supernode.start_client_internal:_push_messages(state,object_store,send,push_object)
    """,
    APPS: "flwr.cli.build:build_fab_from_disk",
    RESIDENT: """
        flwr.app:Message.deflate
        flwr.common.serde:context_from_proto flwr.common.serde:context_to_proto
        flwr.proto.message_pb2:Context.FromString flwr.proto.message_pb2:Context.SerializeToString
        flwr.supercore.inflatable.inflatable_object:get_all_nested_objects
        flwr.supercore.inflatable.inflatable_object:no_object_id_recompute
        flwr.supercore.inflatable.inflatable_utils:inflate_object_from_contents
    """,
    SUPERLINK: """
        flwr.common.serde:metadata_from_proto
        flwr.proto.log_pb2:PushLogsRequest
        flwr.proto.message_pb2:Message.FromString flwr.proto.message_pb2:Metadata
        flwr.proto.node_pb2:Node
        flwr.proto.node_pb2:NodeInfo().name
        flwr.proto.node_pb2:NodeInfo().node_id
        flwr.proto.node_pb2:NodeInfo().public_key
        flwr.serverapp:Grid.get_nodes
        flwr.supercore.inflatable.inflatable_object:get_object_body
        flwr.supercore.inflatable.inflatable_object:get_object_head_values_from_object_content
        flwr.supercore.runtime:RuntimeHttpClient.PushLogs
        flwr.superlink.grid.http_grid:HttpGrid._runtime_client
        flwr.superlink.grid.http_grid:inflate_object_from_contents
    """,
    SIMULATION: "flwr.superlink.grid.inmemory_grid:InMemoryGrid",
    OLDER: "flwr.server.compat.grid_client_proxy:GridClientProxy(grid)",
    SPEED: """
        flwr.supercore.inflatable.inflatable_utils:pull_and_inflate_object_from_tree(initial_backoff)
        flwr.supercore.inflatable.inflatable_utils:pull_objects(initial_backoff,backoff_cap)
        flwr.supercore.superexec.run_superexec:_TASK_POLL_INTERVAL_ENV
        flwr.supernode.start_client_internal:time
    """,
}
"""By what fails, names ``module:object``, with the parameters that are given by name in brackets, or with
an attribute of an instance after ``()``. After a bar, the brackets have what else may be required. Without
the names of `SPEED`, Flower is only slower, and no run asks for them."""

VALID = "query"
"""An argument to make an instance with: the type of a message."""


def missing(part: str) -> list[str]:
    """Return the names of a part of `NAMES` that this version of Flower does not have."""
    return [name for name in NAMES[part].split() if not _is_there(name)]


def check(parts: Iterable[str]) -> None:
    """Raise a `RunError` if Flower lacks a name that one of these parts of `NAMES` needs; it names all."""
    lost = [f"{name}, without which {part} fails" for part in parts for name in missing(part)]
    if lost:
        raise RunError(
            f"flwr {version('flwr')} has no {'; no '.join(lost)}",
            thing="flwr",
            value=version("flwr"),
            remedy=f"install one of the tested versions, {TESTED}",
        )


def _is_there(name: str) -> bool:
    path, _, rest = name.partition("(")
    brackets, _, attribute = rest.partition(")")
    try:
        value = resolve_name(path)
        if attribute:
            instance = value(*[VALID] * len(_required(value)))
            return hasattr(instance, attribute.removeprefix("."))
        return not brackets or _takes(value, brackets)
    except Exception:  # what Flower has in its place may raise anything
        return False


def _takes(function: Any, brackets: str) -> bool:
    """Return whether a function has these parameters; with a bar, whether it requires no others."""
    names, bar, more = brackets.partition("|")
    needed = {*names.split(",")}
    has_all = needed <= {*signature(function).parameters}
    return has_all and (not bar or _required(function) <= needed | {*more.split(",")})


def _required(function: Any) -> set[str]:
    """Return the parameters of a function that have no default; compiled classes tell none."""
    try:
        every = signature(function).parameters.values()
    except ValueError:
        return set()
    kinds = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    needed = [one for one in every if one.default is Parameter.empty and one.kind not in kinds]
    return {parameter.name for parameter in needed}
