"""What a run was told, handed on by the environment: to workers and jobs, which look for a server there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from mqueue.cli.contexts import Context


@contextmanager
def told_by_environment(context: Context) -> Iterator[None]:
    """Whoever names no server finds the one that this run was told, and no more."""
    given = {"MQUEUE_URL": context.url, "MQUEUE_TOKEN": context.token, "MQUEUE_NAMESPACE": context.namespace}
    before = dict(os.environ)
    for name, value in given.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    os.environ.pop("MQUEUE_TOKEN_FILE", None)  # it had its say
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
