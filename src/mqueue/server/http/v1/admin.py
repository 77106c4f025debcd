"""The whole server: namespaces, quotas, keys, totals. Whoever may use these may do everything."""

from __future__ import annotations

import msgspec

from mqueue.broker import overview
from mqueue.model.names import check_name
from mqueue.model.times import instant_ms, rfc3339
from mqueue.server.http.answer import NOTHING, Answer, as_json
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Parameter, Route
from mqueue.server.http.v1.paging import PAGED, page
from mqueue.server.security.keys import KeyRecord
from mqueue.wire.json_manage import (
    DamageOut,
    KeyIn,
    KeyMadeOut,
    KeyOut,
    KeysOut,
    NamespaceOut,
    NamespacesOut,
    QuotaIn,
    QuotaOut,
    QuotasOut,
    StatsOut,
)

_QUOTA = msgspec.json.Decoder(QuotaIn)
_KEY = msgspec.json.Decoder(KeyIn)


async def namespaces(call: Call) -> Answer:
    found = await overview.namespaces(call.behind)
    names, more = page(call, found)
    return as_json(NamespacesOut([NamespaceOut(name, found[name]) for name in names], more))


async def stats(call: Call) -> Answer:
    """The server as a whole unless a namespace is named."""
    named = "namespace" in call.query or "x-mqueue-namespace" in call.headers
    call.demand("read", call.namespace if named else "*")
    call.flag("partial")  # alone, a server is always whole
    return as_json(StatsOut(**await overview.totals(call.behind, call.namespace if named else None)))


async def damage(call: Call) -> Answer:
    return as_json(DamageOut(await call.broker.damage()))


async def quotas(call: Call) -> Answer:
    found = await call.service.administration.quotas()
    names, more = page(call, found)
    return as_json(QuotasOut([QuotaOut(name, found[name]) for name in names], more))


async def set_quota(call: Call) -> Answer:
    namespace = check_name(call.names["namespace"], "namespace")
    administration = call.service.administration
    await administration.set_quota(namespace, call.parsed(_QUOTA).per_minute)
    return as_json(QuotaOut(namespace, (await administration.quotas()).get(namespace)))


async def drop_quota(call: Call) -> Answer:
    await call.service.administration.set_quota(check_name(call.names["namespace"], "namespace"), None)
    return NOTHING


async def keys(call: Call) -> Answer:
    found = {record.name: record for record in await call.service.administration.keys()}
    names, more = page(call, found)
    return as_json(KeysOut([_shown(found[name]) for name in names], more))


async def add_key(call: Call) -> Answer:
    wanted = call.parsed(_KEY)
    expires_at = None if wanted.expires_at is None else instant_ms(wanted.expires_at, "expires_at")
    administration = call.service.administration
    key = await administration.add_key(wanted.name, wanted.scopes, expires_at)
    secret = await administration.signing_secret(wanted.name)
    return as_json(KeyMadeOut(wanted.name, key, secret), 201, (("cache-control", "no-store"),))


async def revoke_key(call: Call) -> Answer:
    await call.service.administration.revoke_key(call.names["name"])
    return NOTHING


def _shown(record: KeyRecord) -> KeyOut:
    return KeyOut(
        record.name,
        list(record.scopes),
        rfc3339(record.created_at),
        None if record.expires_at is None else rfc3339(record.expires_at),
        None if record.revoked_at is None else rfc3339(record.revoked_at),
    )


_QUOTA_OF = "/v1/quotas/{namespace}"

ROUTES = (
    Route(
        "GET",
        "/v1/stats",
        stats,
        "read",
        "inside",
        "Show the server, or a namespace, in numbers",
        gives=StatsOut,
        query=(Parameter("partial", "boolean", "in a cluster, also where not everything can be counted now"),),
    ),
    Route("GET", "/v1/damage", damage, "read", "server", "Show what of the data directory is damaged", gives=DamageOut),
    Route("GET", "/v1/namespaces", namespaces, "read", "server", "List namespaces", gives=NamespacesOut, query=PAGED),
    Route("GET", "/v1/quotas", quotas, "manage", "server", "List quotas", gives=QuotasOut, query=PAGED),
    Route("PUT", _QUOTA_OF, set_quota, "manage", "server", "Set a quota", takes=QuotaIn, gives=QuotaOut),
    Route("DELETE", _QUOTA_OF, drop_quota, "manage", "server", "Take a quota away", status=204),
    Route("GET", "/v1/keys", keys, "manage", "server", "List API keys", gives=KeysOut, query=PAGED),
    Route(
        "POST", "/v1/keys", add_key, "manage", "server", "Make an API key", takes=KeyIn, gives=KeyMadeOut, status=201
    ),
    Route("DELETE", "/v1/keys/{name}", revoke_key, "manage", "server", "Revoke an API key", status=204),
)
