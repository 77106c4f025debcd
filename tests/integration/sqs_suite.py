"""`make sqs-suite`: the SQS tests of moto, which thousands of projects test against, run against a server of ours.

Moto is fetched when this is called, at one version, and lives in a directory that goes with the run: its package in an
environment of its own, its tests out of its source distribution. They are told that moto runs elsewhere; there a small
proxy puts their account before our server, and answers the one question of another service that they have.

A test that fails and is not in `OTHERWISE`, or is there and passes, is an error. So is an answer by which our
server is at fault, whatever the test makes of it.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import aiohttp
from aiohttp import web

from mqueue.testing.server import RunningServer

MOTO = "moto==5.2.5"
FILES = ("test_sqs.py", "test_sqs_message_attributes.py")
ACCOUNT = "123456789012"
PATIENCE_SECONDS = 900
IDENTITY = (
    "<GetCallerIdentityResponse xmlns='https://sts.amazonaws.com/doc/2011-06-15/'><GetCallerIdentityResult>"
    f"<Arn>arn:aws:sts::{ACCOUNT}:user/suite</Arn><UserId>suite</UserId><Account>{ACCOUNT}</Account>"
    "</GetCallerIdentityResult></GetCallerIdentityResponse>"
)

SENTENCE = "compares the sentence of an error; the code is the same, the sentences are ours"
FENCED = "a receipt that is over settles nothing here, and says so"
GRANTS = "rights are grants of keys and tokens, not policies of queues"
BLANK = "the name of an attribute ends in a blank, which moto overlooks"
OTHERWISE = {
    "test_create_fifo_queue_invalid_name": SENTENCE,
    "test_get_unknown_queue_by_name": SENTENCE,
    "test_get_queue_url_error_not_exists": SENTENCE,
    "test_delete_queue_error_not_exists": SENTENCE,
    "test_get_queue_attributes_error_not_exists": SENTENCE,
    "test_get_queue_attributes_errors": SENTENCE,
    "test_message_with_invalid_attributes": SENTENCE,
    "test_message_with_attributes_invalid_datatype": SENTENCE,
    "test_send_large_message_fails": SENTENCE,
    "test_change_message_visibility_on_unknown_receipt_handle": SENTENCE,
    "test_delete_message_errors": SENTENCE,
    "test_delete_message_from_unknown_url": SENTENCE,
    "test_delete_message_batch_with_zero_entries": SENTENCE,
    "test_send_message_batch_errors": SENTENCE,
    "test_send_message_batch_with_empty_list": SENTENCE,
    "test_send_message_batch_reports_an_invalid_delay_per_entry": SENTENCE,
    "test_list_queue_tags_errors": SENTENCE,
    "test_tag_queue_errors": SENTENCE,
    "test_tag_unknown_queue": SENTENCE,
    "test_untag_queue_errors": SENTENCE,
    "test_untag_unknown_queue": SENTENCE,
    "test_send_message_to_fifo_without_message_group_id": SENTENCE,
    "test_send_messages_to_fifo_without_message_group_id": SENTENCE,
    "test_send_message_fails_when_message_size_greater_than_max_message_size": SENTENCE,
    "test_fifo_dedupe_error_no_message_group_id": SENTENCE,
    "test_fifo_dedupe_error_no_message_dedupe_id": SENTENCE,
    "test_fifo_dedupe_error_no_message_dedupe_id_batch": SENTENCE,
    "test_send_message_delay_seconds_validation": SENTENCE,
    "test_permissions": GRANTS,
    "test_add_permission_errors": GRANTS,
    "test_remove_permission_errors": GRANTS,
    "test_get_queue_attributes_template_response_validation": GRANTS,
    "test_create_queue_with_policy": GRANTS,
    "test_set_queue_attribute_empty_policy_removes_attr": GRANTS,
    "test_create_queue_kms": "messages are not encrypted at rest, and nobody says they were",
    "test_change_message_visibility_on_old_message": FENCED,
    "test_batch_change_message_visibility_on_old_message": FENCED,
    "test_delete_message_using_old_receipt_handle": FENCED,
    "test_delete_message_batch_with_invalid_receipt_id": FENCED,
    "test_message_becomes_inflight_when_received": BLANK,
    "test_receive_message_with_explicit_visibility_timeout": BLANK,
    "test_change_message_visibility": BLANK,
    "test_queue_length": BLANK,
    "test_delete_batch_operation": BLANK,
    "test_delete_message_after_visibility_timeout": BLANK,
    "test_message_retention_period": "a retention of one second, which SQS does not take either: the least is 60",
    "test_message_delay_is_more_than_15_minutes": "sends deduplication ids to a queue that is not FIFO",
    "test_receive_messages_with_message_group_id": "one message of a group at a time, also in one answer",
    "test_purge_queue_before_delete_message": "what was in flight at a purge holds its group until its time is over",
    "test_purge_queue_twice_raises_purge_in_progress": "a purge is over when it is answered",
    "test_create_queues_in_multiple_region": "there are no regions, and the address is not localhost:5000",
    "test_get_queue_with_prefix": "the address is not localhost:5000",
}


def main() -> int:
    with (
        tempfile.TemporaryDirectory(prefix="sqs-suite-") as folder,
        RunningServer() as server,
        Proxy(server.url) as proxy,
    ):
        place = Path(folder)
        python = _fetched(place)
        report = place / "report.xml"
        _run_tests(place, python, proxy.url, report)
        return _judged(report, proxy.broken)


def _fetched(place: Path) -> Path:
    """A Python that has moto; its tests are unpacked beside it."""
    python = place / "venv/bin/python"
    quiet = ("-m", "pip", "--quiet", "--disable-pip-version-check")
    _call(sys.executable, "-m", "venv", str(place / "venv"))
    _call(str(python), *quiet, "install", MOTO, "freezegun", "pytest", "setuptools", "wheel")
    _call(
        str(python), *quiet, "download", "--no-deps", "--no-binary", ":all:", "--no-build-isolation",
        "--dest", str(place), MOTO,
    )  # fmt: skip
    [archive] = place.glob("moto-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(place, filter="data")
    return python


def _run_tests(place: Path, python: Path, url: str, report: Path) -> None:
    [source] = place.glob("moto-*/")
    told = {
        "TEST_SERVER_MODE": "true",
        "TEST_SERVER_MODE_ENDPOINT": url,
        "MOTO_CALL_RESET_API": "false",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    words = [str(python), "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", f"--junit-xml={report}"]
    words += [f"tests/test_sqs/{name}" for name in FILES]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | told
    done = subprocess.run(words, cwd=source, env=environ, timeout=PATIENCE_SECONDS, check=False, capture_output=True)
    if not report.exists():
        raise SystemExit(done.stdout.decode() + done.stderr.decode())


def _judged(report: Path, broken: list[str]) -> int:
    passed, skipped, otherwise, wrong = 0, 0, 0, broken[:]
    idle = set(OTHERWISE)
    for case in ElementTree.parse(report).iter("testcase"):
        name = case.attrib["name"]
        expected = OTHERWISE.get(name.partition("[")[0])
        failure = next((part for part in case if part.tag in ("failure", "error")), None)
        if any(part.tag == "skipped" for part in case):
            skipped += 1
        elif failure is None:
            passed += 1
        elif expected is not None:
            otherwise += 1
            idle.discard(name.partition("[")[0])
        else:
            wrong.append(f"{name}: {failure.attrib.get('message', '')[:300]}")
    wrong += [f"{name} passes, and is listed as one that does not" for name in sorted(idle)]
    print(f"{MOTO}: {passed} passed, {otherwise} otherwise, and why is known, {skipped} skipped, {len(wrong)} wrong")
    print("\n".join(wrong))
    return 1 if wrong or not passed else 0


def _call(*words: str) -> None:
    subprocess.run(words, check=True, timeout=PATIENCE_SECONDS)


class Proxy:
    """Hands requests through, as ones of the account that the tests have; `with` gives its address."""

    def __init__(self, behind: str) -> None:
        self._behind = behind
        self.broken: list[str] = []
        """Answers that say that it is the server's fault."""
        self.url = ""
        self._listens = threading.Event()
        self._stop: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        assert self._listens.wait(PATIENCE_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._thread.join(PATIENCE_SECONDS)

    async def _serve(self) -> None:
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        async with aiohttp.ClientSession(auto_decompress=False) as session:

            async def handle(request: web.Request) -> web.Response:
                if b"GetCallerIdentity" in (body := await request.read()):
                    return web.Response(text=IDENTITY, content_type="text/xml")
                headers = {**request.headers, "X-Mqueue-Namespace": ACCOUNT}
                async with session.request(request.method, f"{self._behind}/", data=body, headers=headers) as reply:
                    kept = {name: value for name, value in reply.headers.items() if name.lower() != "content-length"}
                    answer = await reply.read()
                    if reply.status >= 500:
                        self.broken.append(f"{reply.status} to {body[:100]!r}: {answer[:300]!r}")
                    return web.Response(status=reply.status, body=answer, headers=kept)

            app = web.Application(client_max_size=1 << 26)
            app.router.add_route("*", "/{path:.*}", handle)
            runner = web.AppRunner(app)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            self._stop = lambda: loop.call_soon_threadsafe(over.set)
            self._listens.set()
            await over.wait()
            await runner.cleanup()


if __name__ == "__main__":
    sys.exit(main())
