"""The private names of Flower in `wire.internals` and `wire.border`, by what fails without them."""

from collections.abc import Iterable
from importlib.metadata import version
from inspect import signature
from pkgutil import resolve_name

from fda_flower.errors import RunError

TESTED = "1.40, 1.41 and 1.42"
"""Versions of Flower that have all names."""

MESSAGES, MASKS, GATE = "every run", "masked sums (secure=true)", "the gate of fda-supernode"
APPS, RESIDENT, SUPERLINK = "the digest of an app", "a resident worker", "a run on a SuperLink"

NAMES = {
    MESSAGES: """
        flwr.app:ArrayRecord()._check_key_fn
        flwr.app:ArrayRecord()._check_value_fn
        flwr.app:ArrayRecord()._data
        flwr.clientapp:ClientApp()._registered_funcs
        flwr.common.constant:ErrorCode
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
        flwr.common.config:get_fused_config_from_fab
        flwr.common.config:parse_config_args
        flwr.supercore.inflatable.inflatable_object:get_all_nested_objects
        flwr.supercore.inflatable.inflatable_object:get_object_body
        flwr.supercore.inflatable.inflatable_object:get_object_head_values_from_object_content
        flwr.supercore.inflatable.inflatable_object:get_object_tree
        flwr.supercore.inflatable.inflatable_object:iterate_object_tree
        flwr.supercore.inflatable.inflatable_object:no_object_id_recompute
        flwr.supercore.inflatable.inflatable_utils:inflate_object_from_contents
        flwr.supernode.cli:flower_supernode
        flwr.supernode.start_client_internal:_insert_message
        flwr.supernode.start_client_internal:_pull_and_store_message(object_store,receive,get_run,get_fab)
        flwr.supernode.start_client_internal:_push_messages(state,object_store,send,push_object)
    """,
    APPS: "flwr.cli.build:build_fab_from_disk",
    RESIDENT: """
        flwr.common.serde:context_from_proto flwr.common.serde:context_to_proto
        flwr.proto.message_pb2:Context
        flwr.supercore.inflatable.inflatable_object:get_all_nested_objects
        flwr.supercore.inflatable.inflatable_object:no_object_id_recompute
        flwr.supercore.inflatable.inflatable_utils:inflate_object_from_contents
    """,
    SUPERLINK: """
        flwr.common.serde:metadata_from_proto
        flwr.proto.log_pb2:PushLogsRequest
        flwr.proto.message_pb2:Message flwr.proto.message_pb2:Metadata
        flwr.proto.node_pb2:Node
        flwr.superlink.grid.http_grid:inflate_object_from_contents
    """,
}
"""By what fails, names ``module:object``, with the parameters that are given by name in brackets, or with
an attribute of an instance after ``()``. Without others, for the waits of `run_supernode` and `pull_sooner`,
Flower is only slower."""


def missing(part: str) -> list[str]:
    """Return the names of a part of `NAMES` that this version of Flower does not have."""
    return [name for name in NAMES[part].split() if not _is_there(name)]


def check(parts: Iterable[str] = NAMES) -> None:
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
    parameters, _, attribute = rest.partition(")")
    try:
        found = resolve_name(path)
        if attribute:
            return attribute.removeprefix(".") in vars(found())
        return not parameters or {*parameters.split(",")} <= {*signature(found).parameters}
    except (ImportError, AttributeError):
        return False
