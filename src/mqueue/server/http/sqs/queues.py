"""Queues: made, listed, set up, tagged, emptied, deleted. Each is a topic; see `attributes` for what becomes of which.

One request may need several topics, so these actions go through the calls of the namespace, wherever topics are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mqueue.broker.aio import AsyncBroker
from mqueue.model.errors import NotFound, Refused
from mqueue.model.limits import LABELS_MAX
from mqueue.server.http.call import Call
from mqueue.server.http.sqs import attributes as attr
from mqueue.server.http.sqs.carrying import FAR, SOURCE, carry, far_sources
from mqueue.server.http.sqs.errors import Fault
from mqueue.server.http.sqs.naming import Place, check_new, home_of, named_here, place_of
from mqueue.server.http.sqs.redriving import TARGET, read_allowed, read_redrive, redrive_of
from mqueue.server.security.principal import Verb
from mqueue.wire import json_sqs as wire

_LIST_MAX = 1000
_EDITED = f"{attr.LABEL}LastModifiedTimestamp"


async def create(call: Call, asked: wire.CreateIn) -> wire.UrlOut:
    place = named_here(call, check_new(asked.queue_name))
    calls = calls_of(call, place, "manage")
    given, tags = asked.attributes or {}, asked.tags or {}
    known = await _settings(calls, place)
    if known is not None:
        _check_same(place, known, given)
        return wire.UrlOut(place.url(call))
    settings = attr.settings_for(place, given, is_new=True)
    await _redirect(call, place, None, settings)
    now = _seconds(call)
    settings["labels"] |= {**_tagged({}, tags), f"{attr.LABEL}CreatedTimestamp": now, _EDITED: now}
    await _configure(calls, place, settings)
    return wire.UrlOut(place.url(call))


def _check_same(place: Place, known: dict[str, Any], given: dict[str, str]) -> None:
    """Making a queue that is there is nothing, unless it was to be another one."""
    attr.settings_for(place, {"FifoQueue": str(place.is_fifo).lower(), **given}, is_new=False)
    there = attr.shown(place, known)
    for name, value in given.items():
        if name in attr.REFUSED or name == "FifoQueue":
            continue
        same = there.get(name, "") == value
        if name == "RedrivePolicy":
            same = redrive_of(place, known) == read_redrive(value)
        if not same:
            raise Fault("QueueNameExists", f"queue {place.name!r} is there, with another value for attribute {name}")


async def url(call: Call, asked: wire.UrlIn) -> wire.UrlOut:
    place = named_here(call, asked.queue_name, asked.owner)
    await _known(calls_of(call, place, "read"), place)
    return wire.UrlOut(place.url(call))


async def listed(call: Call, asked: wire.ListIn) -> wire.UrlsOut:
    namespace = home_of(call)
    call.demand("read", namespace)
    prefix = asked.queue_name_prefix or ""
    names = [name for name in await call.service.calls(namespace).topics() if name.startswith(prefix)]
    page, after = _page(names, asked.next_token, asked.max_results)
    return wire.UrlsOut([Place(namespace, name).url(call) for name in page], after)


async def delete(call: Call, asked: wire.QueueIn) -> None:
    place = place_of(call, asked.queue_url)
    calls = calls_of(call, place, "manage")
    known = await _known(calls, place)
    await _redirect(call, place, known, {"dlq": True})
    await calls.delete_topic(place.name)


async def purge(call: Call, asked: wire.QueueIn) -> None:
    place = place_of(call, asked.queue_url)
    await calls_of(call, place, "manage").purge(place.name)


async def attributes(call: Call, asked: wire.NamesIn) -> wire.AttributesOut:
    place = place_of(call, asked.queue_url)
    calls = calls_of(call, place, "read")
    names = set(asked.attribute_names)
    unknown = sorted(names - attr.KNOWN)
    if unknown:
        raise Fault("InvalidAttributeName", f"unknown attribute {unknown[0]!r:.80}")
    settings = await _known(calls, place)
    found = attr.shown(place, settings)
    if names & (attr.COUNTED | {"All"}):
        await carry(calls, place, far_sources(settings["labels"]))
        found |= await _counted(calls, place)
    return wire.AttributesOut({name: value for name, value in found.items() if name in names or "All" in names})


async def _counted(calls: AsyncBroker, place: Place) -> dict[str, str]:
    stats = await calls.stats(place.name)
    group = stats.groups.get("default")
    ready, hidden = (stats.ready, 0) if group is None else (group.ready, group.leased + group.waiting)
    counts = (ready, hidden, stats.scheduled)
    names = (
        "ApproximateNumberOfMessages",
        *(f"ApproximateNumberOfMessages{each}" for each in ("NotVisible", "Delayed")),
    )
    return dict(zip(names, map(str, counts), strict=True))


async def set_attributes(call: Call, asked: wire.AttributesIn) -> None:
    place = place_of(call, asked.queue_url)
    calls = calls_of(call, place, "manage")
    known = await _known(calls, place)
    settings = attr.settings_for(place, asked.attributes, is_new=False)
    await _redirect(call, place, known, settings)
    settings["labels"][_EDITED] = _seconds(call)
    await _configure(calls, place, settings)


async def _configure(calls: AsyncBroker, place: Place, settings: dict[str, Any]) -> None:
    """A dead-letter queue on another server is noted, and the dead are carried there."""
    try:
        await calls.configure(place.name, **settings)
    except Refused as refusal:
        target = settings.get("dlq")
        if refusal.code != "elsewhere" or not isinstance(target, str):
            raise
        await calls.configure(target, labels={SOURCE + place.name: FAR})
        labels = {**settings["labels"], TARGET: target}
        await calls.configure(place.name, **{**settings, "dlq": True, "labels": labels})


async def _redirect(call: Call, place: Place, known: dict[str, Any] | None, settings: dict[str, Any]) -> None:
    """Before the dead of a queue go elsewhere: the other queue is there, and takes them; both know of each other."""
    if "dlq" not in settings:
        return
    before = None if known is None else redrive_of(place, known)
    name = settings["dlq"] if isinstance(settings["dlq"], str) else None
    calls = call.service.calls(place.namespace)
    if name is not None:
        target = Place(place.namespace, name)
        call.demand("manage", target.namespace, target.name)
        there = await _settings(calls, target)
        if there is None:
            raise Fault("InvalidParameterValue", f"the dead-letter queue {target.arn} does not exist")
        allowed = there["labels"].get(f"{attr.LABEL}RedriveAllowPolicy")
        if allowed is not None and not read_allowed(allowed).allows(place):
            raise Fault("InvalidParameterValue", f"the RedriveAllowPolicy of {target.arn} does not allow {place.arn}")
        if len(there["labels"].keys() | {SOURCE + place.name}) > LABELS_MAX:
            raise Fault(
                "InvalidParameterValue",
                f"{target.arn} takes no more dead: {LABELS_MAX} labels are allowed, and it has them",
            )
        await calls.configure(name, labels={SOURCE + place.name: ""})
    if before is not None and before.target.name != name and await _settings(calls, before.target) is not None:
        if known is not None and TARGET in known["labels"]:
            await carry(calls, before.target, [place.name])
        await calls.configure(before.target.name, labels={SOURCE + place.name: None})


async def sources(call: Call, asked: wire.SourcesIn) -> wire.SourcesOut:
    """The queues whose dead go here."""
    place = place_of(call, asked.queue_url)
    calls = calls_of(call, place, "read")
    labels = (await _known(calls, place))["labels"]
    named = [Place(place.namespace, name[len(SOURCE) :]) for name in labels if name.startswith(SOURCE)]
    found: list[str] = []
    for source in named:
        settings = await _settings(calls, source)
        redrive = None if settings is None else redrive_of(source, settings)
        if redrive is not None and redrive.target == place:
            found.append(source.name)
    page, after = _page(found, asked.next_token, asked.max_results)
    return wire.SourcesOut([Place(place.namespace, name).url(call) for name in page], after)


async def tags(call: Call, asked: wire.QueueIn) -> wire.TagsOut:
    place = place_of(call, asked.queue_url)
    return wire.TagsOut(attr.tags_of(await _known(calls_of(call, place, "read"), place)))


async def tag(call: Call, asked: wire.TagIn) -> None:
    place = place_of(call, asked.queue_url)
    calls = calls_of(call, place, "manage")
    if not asked.tags:
        raise Fault("MissingParameter", "Tags is empty; it takes at least one tag")
    known = attr.tags_of(await _known(calls, place))
    await calls.configure(place.name, labels=_tagged(known, asked.tags))


async def untag(call: Call, asked: wire.UntagIn) -> None:
    place = place_of(call, asked.queue_url)
    calls = calls_of(call, place, "manage")
    if not asked.tag_keys:
        raise Fault("InvalidParameterValue", "no tag is named; it takes at least one key")
    await _known(calls, place)
    await calls.configure(place.name, labels=dict.fromkeys(map(attr.TAG.__add__, asked.tag_keys)))


def _tagged(known: dict[str, str], more: dict[str, str]) -> dict[str, str | None]:
    if len({*known, *more}) > attr.TAGS_MAX:
        raise Fault("InvalidParameterValue", f"{len({*known, *more})} tags; {attr.TAGS_MAX} are allowed")
    return attr.tag_labels(more)


def calls_of(call: Call, place: Place, verb: Verb) -> AsyncBroker:
    """The calls of the namespace that a queue is in, for who may do that to it. The audit log is told of the queue."""
    call.namespace, call.names = place.namespace, {"topic": place.name}
    call.demand(verb, place.namespace, place.name)
    return call.service.calls(place.namespace)


async def _settings(calls: AsyncBroker, place: Place) -> dict[str, Any] | None:
    try:
        return await calls.settings(place.name)
    except NotFound:
        return None


async def _known(calls: AsyncBroker, place: Place) -> dict[str, Any]:
    found = await _settings(calls, place)
    if found is None:
        raise place.absent()
    return found


def _page(names: Iterable[str], token: str | None, most: int | None) -> tuple[list[str], str | None]:
    """Names in order, from where a token says; a token for the rest only where somebody asked for pages."""
    if most is not None and not 1 <= most <= _LIST_MAX:
        raise Fault("InvalidParameterValue", f"MaxResults {most}; it takes 1 to {_LIST_MAX}")
    rest = sorted(name for name in names if token is None or name > token)
    size = most or _LIST_MAX
    return rest[:size], rest[size - 1] if most is not None and len(rest) > size else None


def _seconds(call: Call) -> str:
    return str(call.service.clock.now() // 1000)
