"""Managing a server: who may use it, and how much. Only whoever may do everything may do this."""

from __future__ import annotations

from typing import Annotated

import typer

from mqueue.cli.server import ask, escaped, listed
from mqueue.cli.session import Session
from mqueue.cli.verb import MANAGE, Yes, below, confirm, verb

KEY_COLUMNS = ("name", "scopes", "created_at", "expires_at", "revoked_at")
QUOTA_COLUMNS = ("namespace", "per_minute")

Name = Annotated[str, typer.Argument(help="The key's name.", show_default=False)]
Namespace = Annotated[str, typer.Argument(help="The namespace.", show_default=False, metavar="NAMESPACE")]


def add(app: typer.Typer) -> None:
    inner = below(app, "keys", MANAGE, "List the API keys of a server; make and revoke them.")
    verb(inner, "list")(list_keys)
    verb(inner, "create")(create_key)
    verb(inner, "revoke")(revoke_key)
    inner = below(app, "quotas", MANAGE, "List what namespaces may publish a minute; set and remove it.")
    verb(inner, "list")(list_quotas)
    verb(inner, "set")(set_quota)
    verb(inner, "delete")(delete_quota)


def list_keys(session: Session) -> None:
    """List all keys that were ever made. The keys themselves are not kept anywhere."""
    session.printer.rows(KEY_COLUMNS, list(listed(session, "/v1/keys", "keys")))


def create_key(
    session: Session,
    name: Name,
    scope: Annotated[list[str], typer.Option("--scope", "-s", help="read:tenant-a/orders.*; may be repeated.")],
    expires_at: Annotated[str | None, typer.Option("--expires-at", help="A time (RFC 3339, UTC).")] = None,
    aws: Annotated[bool, typer.Option("--aws", help="As the variables that AWS clients read, to sign with.")] = False,
) -> None:
    """Make a key and print it, for the only time."""
    body = {"name": name, "scopes": scope} | ({"expires_at": expires_at} if expires_at else {})
    made = ask(session, "POST", "/v1/keys", body)
    if aws:
        print(f"AWS_ACCESS_KEY_ID={made['name']}\nAWS_SECRET_ACCESS_KEY={made['secret_access_key']}")
    elif session.printer.for_people:
        print(made["key"])
    else:
        session.printer.one(made)


def revoke_key(session: Session, name: Name, yes: Yes = False) -> None:
    """Revoke a key, at once and for good."""
    confirm(f"Revoke the key {name}?", yes)
    ask(session, "DELETE", f"/v1/keys/{escaped(name)}")
    if session.printer.for_people:
        print(f"revoked {name}")


def list_quotas(session: Session) -> None:
    """List the namespaces that have a quota: messages a minute that they may publish."""
    session.printer.rows(QUOTA_COLUMNS, list(listed(session, "/v1/quotas", "quotas")))


def set_quota(
    session: Session,
    tenant: Namespace,
    per_minute: Annotated[int, typer.Argument(min=1, help="Messages a minute.", show_default=False)],
) -> None:
    """Let a namespace publish so many messages a minute."""
    session.printer.one(ask(session, "PUT", f"/v1/quotas/{escaped(tenant)}", {"per_minute": per_minute}))


def delete_quota(session: Session, tenant: Namespace) -> None:
    """Take a namespace's own quota away: the configuration's counts again."""
    ask(session, "DELETE", f"/v1/quotas/{escaped(tenant)}")
    if session.printer.for_people:
        print(f"{tenant} has no quota of its own")
