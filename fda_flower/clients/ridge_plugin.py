"""Ridge's answers in a project of its own, which has rows and labels; with NumPy only."""

from numbers import Integral
from typing import Any

import numpy as np
from flwr.app import Message, RecordDict
from numpy.typing import NDArray

from fda_flower.aggregation import widths_of
from fda_flower.aggregation.units import without_name
from fda_flower.clients.private_state import PrivateState
from fda_flower.clients.ridge_numpy import Labelled, fit_target, source_sums
from fda_flower.clients.secure_sums import masked_sums
from fda_flower.errors import ConfigError, invalid
from fda_flower.wire.asked import QUESTIONS
from fda_flower.wire.asked.ridge import FitHead, Summed, SumRows
from fda_flower.wire.asked.secure_sums import MaskSums
from fda_flower.wire.protocol import TrainReply, TrainRequest, read_request, to_layers


def ridge_reply(
    message: Message,
    rows: NDArray[Any],
    labels: NDArray[Any],
    classes: int | None = None,
    state: RecordDict | None = None,
    groups: NDArray[Any] | None = None,
    unlabelled: NDArray[Any] | None = None,
    unlabelled_groups: NDArray[Any] | None = None,
) -> Message:
    """Answer a question of `fda_flower.strategies.Ridge` in your own project.

    Register your function for ``@app.train("sum_rows")`` and ``@app.train("fit_head")``; for
    ``Ridge(secure=True)`` also for ``@app.train("mask_sums")``.

    Parameters
    ----------
    message : Message
        Its model is the weights of a linear layer, shape ``(C, features)``, and its bias.
    rows : array
        The node's labelled samples, shape ``(n, features + 1)``; see `fda_flower.aggregation.to_rows`.
    labels : array
        Classes from 0 on, shape ``(n,)``, or numbers, shape ``(n,)`` or ``(n, C)``.
    classes : int, optional
        The number of classes. Default: the labels are numbers.
    state : RecordDict, optional
        The ``state`` of Flower's context, needed by ``Ridge(secure=True)``.
    groups : array, optional
        The patient of each row, shape ``(n,)``: what the target leaves out at a time, and what a site whose
        ``dp-unit`` is ``patient`` protects. Default: every row is a different patient.
    unlabelled : array, optional
        Rows of the target's samples without labels, shape ``(m, features + 1)``.
    unlabelled_groups : array, optional
        The patient of each of these, named as in `groups`, shape ``(m,)``; needed with `groups`.

    Returns
    -------
    Message
        From a source the sums, masked on request; from the target its fitted layer.

    Raises
    ------
    ConfigError
        If the message is another one, such as ``train.fit_site_head``, for a layer that a site keeps; if it
        requests masked sums, but there is no `state`; if a row has no patient with a name; or if labels are
        no classes from 0 on.
    """
    kind = message.metadata.message_type
    question = QUESTIONS.get(kind)
    if question is None or not issubclass(question, SumRows | MaskSums | FitHead):
        remedy = 'register it for the actions "sum_rows", "fit_head" and "mask_sums" alone'
        raise ConfigError(
            f"ridge_reply has no answer to '{kind}'", thing="message", value=kind, remedy=remedy
        )
    request = read_request(message.content, question)
    labels = _read_labels(labels, classes, len(rows))
    private_state, widths = (
        None if state is None else PrivateState(state),
        widths_of(to_layers(request.arrays)),
    )
    for name, given, of in (("groups", groups, rows), ("unlabelled_groups", unlabelled_groups, unlabelled)):
        _check_groups(name, given, of, needed=groups is not None)
    own = Labelled(
        np.asarray(rows, np.float64), labels, classes, widths, groups, unlabelled, unlabelled_groups
    )
    reply = _reply(request, own, private_state)
    return Message(reply.content(request.arrays), reply_to=message)


def _read_labels(labels: Any, classes: Any, rows: int) -> NDArray[Any]:
    """Return labels as numbers, or as classes; raise a `ConfigError` if these are not 0 to C - 1."""
    if classes is None:
        return np.asarray(labels, np.float64).reshape(rows, -1)
    if not isinstance(classes, Integral):
        raise invalid("classes", classes, "give the number of classes, such as 3")
    count, given = int(classes), np.asarray(labels)
    with np.errstate(invalid="ignore"):
        read = given.astype(np.int64) if given.dtype.kind in "biuf" else np.full(1, -1)
    if not (np.array_equal(read, given) and ((read >= 0) & (read < count)).all()):
        why = f"labels are not all whole numbers from 0 to {count - 1}"
        raise ConfigError(why, thing="labels", remedy="number the classes from 0 on, alike at all sites")
    return read


def _check_groups(name: str, groups: NDArray[Any] | None, rows: NDArray[Any] | None, needed: bool) -> None:
    """Raise a `ConfigError` unless there is one patient for each row, or none for any."""
    count = 0 if rows is None else len(rows)
    given = None if groups is None else len(groups)
    if given != count and (given is not None or (needed and count)):
        what = f"{name} has the patients of {given or 0} of {count} rows"
        raise ConfigError(what, thing=name, value=given, remedy="give one for each row, in their order")
    if groups is not None and (lacking := without_name(groups)):
        what = f"{name} has no patient for {lacking} of {count} rows"
        raise ConfigError(what, thing=name, value=lacking, remedy="name each, or leave these rows out")


def _reply(request: TrainRequest, own: Labelled, private_state: PrivateState | None) -> TrainReply:
    model, question = to_layers(request.arrays), request.question
    if isinstance(question, FitHead):
        fitted = fit_target(own, question)
        return TrainReply(fitted.in_model(model), len(own.rows), answer=fitted.answer())
    if isinstance(question, MaskSums):
        if question.over == "columns":
            why = "the server asks for columns of a table, which a project of its own standardises itself"
            raise ConfigError(
                why, thing="over", value="columns", remedy="leave 'columns' out of your role answer"
            )
        centred = bool(question.centred)
        masked = masked_sums(request, question, private_state, lambda: own.sums(centred))
        return TrainReply(model, len(own.rows), answer=masked)
    sums = source_sums(request, own, isinstance(question, SumRows) and bool(question.centred))
    return TrainReply(model, len(own.rows), answer=Summed(sums=sums))
