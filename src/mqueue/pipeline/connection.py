"""Where the server is and how Spark shows up there: taken from options, the environment or a file, on the driver, once.

The token is a secret: it is in no `repr` and in no sentence. It travels to executors inside pickled readers and
writers. Opens no connection before it is asked to.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from mqueue.model.errors import BadSetting

if TYPE_CHECKING:
    from mqueue.client.sync import Client

CONNECTION_OPTIONS = ("servers", "token", "tokenFile", "namespace", "timeout", "ca", "cert")
"""What every user of a server may give, reader or writer."""
URL_VARIABLE, TOKEN_VARIABLE = "MQUEUE_URL", "MQUEUE_TOKEN"


class Connection(Struct, frozen=True):
    """All that it takes to open a client. Picklable, and checked."""

    servers: str
    namespace: str = "default"
    token: str | None = None
    timeout: str = "30s"
    ca: str | None = None
    cert: str | None = None

    def __repr__(self) -> str:
        return f"<Connection to {self.servers}, namespace {self.namespace}{', with a token' if self.token else ''}>"

    def open(self) -> Client:
        """A client of its own; close it."""
        from mqueue.client.sync import Client

        return Client(
            self.servers,
            token=self.token,
            namespace=self.namespace,
            timeout=self.timeout,
            ca=self.ca,
            cert=self.cert,
            encoding="arrow",
        )


def connection_of(options: Mapping[str, str], token: str | None = None) -> Connection:
    """What options and the environment say, checked. Names of options are lower case. `token`: if nobody gives one."""
    from mqueue.client.address import DEFAULT_URL, address_of

    servers = options.get("servers") or os.environ.get(URL_VARIABLE)
    if not servers:
        raise BadSetting(
            f"option servers is missing: give the URL of the server, such as {DEFAULT_URL}, or set {URL_VARIABLE}"
            " (a table made by CREATE TABLE hands no options on: use a temporary view)"
        )
    found = Connection(
        servers,
        options.get("namespace", "default"),
        _token(options) or token or os.environ.get(TOKEN_VARIABLE) or None,
        options.get("timeout", "30s"),
        options.get("ca"),
        options.get("cert"),
    )
    address_of(found.servers, found.token, "", found.timeout, found.ca, found.cert, "arrow", True)
    return found


def without_secrets(options: Mapping[str, str]) -> dict[str, str]:
    """Options that may be kept and shown, by their lower-case names."""
    return {name.lower(): value for name, value in options.items() if name.lower() not in ("token", "tokenfile")}


def _token(options: Mapping[str, Any]) -> str | None:
    token, file = options.get("token"), options.get("tokenfile")
    if token and file:
        raise BadSetting("options token and tokenFile are both given; one is enough")
    if not file:
        return token
    try:
        return Path(file).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"tokenFile {file!r:.200} cannot be read on the driver: {type(error).__name__}") from None
