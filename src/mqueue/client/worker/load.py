"""The worker that `module:name` stands for, as the command line gives it."""

from __future__ import annotations

import importlib
import os
import sys

from mqueue.client.worker.app import App
from mqueue.model.errors import BadSetting

_GIVE = "give module:name, as in shop.tasks:app"


def load_app(place: str) -> App:
    """The worker at a place, which may be in the directory one stands in. Errors inside a module stay as they are."""
    module_name, colon, name = place.partition(":")
    if not colon or not name or not all(part.isidentifier() for part in module_name.split(".")):
        raise BadSetting(f"worker {place!r:.80} is no place in a module; {_GIVE}")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # it is there, and something that it imports is not
        raise BadSetting(
            f"worker {place!r:.80}: there is no module {error.name!r}, seen from {here}; {_GIVE}"
        ) from error
    app = getattr(module, name, None)
    if app is None:
        raise BadSetting(f"worker {place!r:.80}: module {module_name!r} has no {name!r}; {_GIVE}")
    if not isinstance(app, App):
        raise BadSetting(f"worker {place!r:.80}: {name!r} is a {type(app).__name__}, not a mqueue.Worker")
    return app
