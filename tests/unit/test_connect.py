"""connect: which broker a URL stands for, and a sentence for every URL that stands for none."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import mqueue
from mqueue.testing import ManualClock

REFUSED = [
    ("file:", "no directory is named"),
    ("file://", "no directory is named"),
    ("file://host/data", "a host cannot be named"),
    ("http:", "it takes http or https and a host"),
    ("https:///orders", "it takes http or https and a host"),
    ("redis://somewhere", "url redis:…: the schemes are memory:, file:, http:, https:"),
    ("orders", "without a scheme: the schemes are memory:, file:"),
    ("", "no url was given and MQUEUE_URL is not set; give 'memory:'"),
    ("memory:orders", "nothing follows the colon"),
    (":", "the schemes are"),
]


@pytest.fixture(autouse=True)
def _no_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MQUEUE_URL", raising=False)


def test_memory_is_a_broker_with_the_settings_given() -> None:
    clock = ManualClock()
    with mqueue.connect("memory:", clock=clock, max_retries=7) as q:
        assert type(q) is mqueue.Broker
        assert q.configure("orders")["max_retries"] == 7
        q.publish("orders", b"1", delay="1h")
        clock.advance("1h")
        assert len(q.receive("orders")) == 1


@pytest.mark.parametrize("url", ["memory:", "Memory:"])
def test_the_environment_names_the_url_where_none_is_given(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQUEUE_URL", url)
    mqueue.connect().close()


@pytest.mark.parametrize("scheme", ["file:", "FILE:", "file://"])
def test_a_file_is_a_broker_on_disk(scheme: str, tmp_path: Path) -> None:
    url = f"{scheme}{tmp_path}/data"
    with mqueue.connect(url, name="me") as q:
        assert q.publish("orders", b"1").durability == "fsync"
        with pytest.raises(mqueue.InUse, match="in use by process"):
            mqueue.connect(url)

    async def main() -> None:
        async with mqueue.connect_async(url) as again:
            assert [m.payload for m in await again.receive("orders")] == [b"1"]

    asyncio.run(main())


@pytest.mark.parametrize(("url", "sentence"), REFUSED)
def test_what_is_not_there_is_refused_with_what_to_give(url: str, sentence: str) -> None:
    for call in (mqueue.connect, mqueue.connect_async):
        with pytest.raises(mqueue.BadSetting) as refused:
            call(url)
        assert sentence in str(refused.value)


def test_a_bad_url_in_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for url, sentence in REFUSED:
        monkeypatch.setenv("MQUEUE_URL", url)
        with pytest.raises(mqueue.BadSetting) as refused:
            mqueue.connect()
        assert sentence in str(refused.value)


def test_a_refusal_shows_no_password() -> None:
    for url in ("http://me:secret@host", "amqp://me:secret@host"):
        with pytest.raises(mqueue.BadSetting) as refused:
            mqueue.connect(url)
        assert "secret" not in str(refused.value)


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(mqueue.BadSetting):
        mqueue.connect("memory:", max_retrys=1)


def test_an_async_broker_by_await_or_by_async_with() -> None:
    async def main() -> None:
        q = await mqueue.connect_async("memory:", max_retries=7)
        assert type(q) is mqueue.AsyncBroker
        assert (await q.configure("orders"))["max_retries"] == 7
        await q.close()
        async with mqueue.connect_async("memory:") as q:
            await q.publish("orders", b"1")
        with pytest.raises(mqueue.Closed):
            await q.topics()

    asyncio.run(main())


def test_a_server_is_a_client_with_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQUEUE_TOKEN", "hush-hush")
    monkeypatch.setenv("MQUEUE_NAMESPACE", "tenant-a")
    with mqueue.connect("http://127.0.0.1:1", name="me") as q:
        assert type(q) is mqueue.Client
        assert repr(q) == "<Client of http://127.0.0.1:1, namespace tenant-a>"
    with mqueue.connect("http://127.0.0.1:1", namespace="tenant-b") as q:
        assert "tenant-b" in repr(q)

    async def main() -> None:
        async with mqueue.connect_async("http://127.0.0.1:1") as q:
            assert type(q) is mqueue.AsyncClient

    asyncio.run(main())
