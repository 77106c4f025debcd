"""Where a server keeps what is administered while it runs: in its data directory, or nowhere; a node, where all nodes
of its cluster do."""

from __future__ import annotations

import os

from msgspec.structs import replace

from mqueue.broker import backstage
from mqueue.broker.broker import Broker
from mqueue.config import Config
from mqueue.model.clock import Clock
from mqueue.model.errors import BadSetting
from mqueue.server.administration import Administrator
from mqueue.server.quotas import QuotaFile
from mqueue.server.security.gatekeeper import Gatekeeper
from mqueue.server.security.keyfile import KeyFile
from mqueue.server.security.keys import Keys
from mqueue.server.shelf import DiskShelf, Shelf


def administrator_of(
    config: Config, broker: Broker, clock: Clock, door: Gatekeeper, shared: Shelf | None = None
) -> Administrator:
    """Keys and quotas as they were left; both in force when this returns. `shared`: where all nodes keep them. It is
    read at once, so whoever calls waits for it."""
    disk = backstage.disk_of(broker)
    shelf = shared if shared is not None or disk is None else DiskShelf(disk)
    key_file, keys = _keys(config, shelf)
    quota_file = None if shelf is None else QuotaFile(shelf)

    def take_keys(changed: Keys) -> None:
        door.rules = replace(door.rules, keys=changed)

    if keys is not None:
        take_keys(keys)
    made = Administrator(
        clock,
        os.urandom,
        take_keys,
        lambda quotas, default: backstage.set_quotas(broker, quotas, default),
        keys=keys,
        key_file=key_file,
        quotas=None if quota_file is None else quota_file.load(),
        quota_file=quota_file,
    )
    made.configure(config.quotas.namespaces, config.quotas.default)
    return made


def _keys(config: Config, shelf: Shelf | None) -> tuple[KeyFile | None, Keys | None]:
    """The keys and where they are kept; none where keys are no way in."""
    pepper = config.security.keys_pepper
    if "keys" not in config.security.auth:
        return None, None
    if pepper is None:
        raise BadSetting("security.auth names keys, but there is no security.keys.pepper to keep them with")
    secret = pepper.reveal().encode()
    if shelf is None:
        return None, Keys(secret)
    file = KeyFile(shelf, secret)
    return file, file.load()
