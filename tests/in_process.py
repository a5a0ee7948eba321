"""Takes the place of `fda_flower.running.processes.run_all`, whose processes take seconds to start."""

from fda_flower.errors import FdaError
from fda_flower.running.processes import TaskProgress


def run_all(function, tasks, jobs, on_poll=None, libraries=()):
    state = TaskProgress([], [], {})
    for name, argument in tasks.items():
        try:
            function(argument)
            state.done.append(name)
        except Exception as error:
            state.failures[name] = str(error) if isinstance(error, FdaError) else repr(error)
        if on_poll is not None:
            on_poll(state)
    return state.failures
