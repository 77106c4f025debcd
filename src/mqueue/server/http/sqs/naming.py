"""What queues are called: URLs, ARNs and receipt handles, and the topics, namespaces and leases behind them.

    http://host:8080/000000000000/orders           topic orders of namespace default
    http://host:8080/tenant-a/orders.fifo          topic orders.fifo of namespace tenant-a
    arn:aws:sqs:us-east-1:tenant-a:orders          the same place as the URL
    <token of the lease>-<id of the message>       a receipt handle

Host and region do not count when names are read. Asks no broker.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from mqueue.model.errors import BadName
from mqueue.model.names import check_name
from mqueue.server.http.call import Call
from mqueue.server.http.sqs.errors import Fault
from mqueue.server.security.principal import ANY, Principal

PATH = "/"
"""Of all actions. Some clients call the URL of the queue instead: whoever names an action of SQS means this path."""
ACTIONS_PATH = "/AmazonSQS."
"""What the paths of actions begin with where they are counted and shown; what clients call is `PATH`."""
FIFO = ".fifo"
DEFAULT_ACCOUNT = "000000000000"
"""Stands for the namespace `default`: account ids have twelve digits."""
REGION = "us-east-1"
_NEW_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo")
_HANDLE = re.compile(r"([0-9a-f]{32})-([0-9]{1,19})")
_ARN_PARTS = 6


class Place(Struct, frozen=True):
    """A queue by its name."""

    namespace: str
    name: str
    token: str = ""
    """A lease that the request is about."""

    @property
    def is_fifo(self) -> bool:
        return self.name.endswith(FIFO)

    @property
    def arn(self) -> str:
        return f"arn:aws:sqs:{REGION}:{account_of(self.namespace)}:{self.name}"

    def absent(self) -> Fault:
        """There is no such queue."""
        return Fault("QueueDoesNotExist", f"there is no queue {self.name!r} in account {account_of(self.namespace)!r}")

    def url(self, call: Call) -> str:
        """Under the name that the caller called this server by."""
        is_secure = call.service.secure or call.headers.get("x-forwarded-proto") == "https"
        host = call.headers.get("host", "localhost")
        return f"{'https' if is_secure else 'http'}://{host}/{account_of(self.namespace)}/{self.name}"


class _Named(Struct, rename="pascal"):
    queue_url: str = ""
    receipt_handle: str = ""


_NAMED = msgspec.json.Decoder(_Named)


def named_queue(call: Call) -> Place | None:
    """The queue and the lease in a body; None: there is none that could be read, which is for the handler to say."""
    try:
        named = _NAMED.decode(call.body)
        place = place_of(call, named.queue_url)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, Fault):
        return None
    handle = _HANDLE.fullmatch(named.receipt_handle)
    return place if handle is None else Place(place.namespace, place.name, handle[1])


def place_of(call: Call, url: str) -> Place:
    """The queue of a URL: the last two parts of its path. A name alone is that of a queue of the caller's namespace."""
    parts = url.rstrip("/").split("/")
    if len(parts) == 1:
        return _place(account_of(home_of(call)), url)
    return _place(unquote(parts[-2]), unquote(parts[-1]))


def place_of_arn(arn: str) -> Place:
    parts = arn.split(":")
    if len(parts) != _ARN_PARTS or parts[0] != "arn" or parts[2] != "sqs":
        raise Fault("InvalidParameterValue", f"{arn!r:.200} is not the ARN of a queue")
    return _place(parts[4], parts[5])


def named_here(call: Call, name: str, account: str | None = None) -> Place:
    """The queue of a name. Without an account it is that of the caller's namespace."""
    return Place(home_of(call) if account is None else namespace_of(account), checked(name))


def check_new(name: str) -> str:
    """The name for a queue that is to be made."""
    if _NEW_NAME.fullmatch(name) is None:
        raise Fault(
            "InvalidParameterValue",
            f"queue name {name!r:.200}; it takes 1 to 80 letters, digits, - and _, and may end in {FIFO}",
        )
    return name


def home_of(call: Call) -> str:
    """The namespace of calls that name none: that of the header, of the one the caller has rights in, or `default`."""
    told = call.headers.get("x-mqueue-namespace") or call.query.get("namespace")
    return told or _only(call.principal) or "default"


def namespace_of(account: str) -> str:
    if account == DEFAULT_ACCOUNT:
        return "default"
    try:
        return check_name(account, "namespace")
    except BadName as error:
        raise Fault("InvalidAddress", error.message) from None


def account_of(namespace: str) -> str:
    return DEFAULT_ACCOUNT if namespace == "default" else namespace


def checked(name: str) -> str:
    try:
        return check_name(name, "queue")
    except BadName as error:
        raise Fault("InvalidParameterValue", error.message) from None


def handle_of(token: str, id: int) -> str:
    return f"{token}-{id}"


def sequence_number(id: int) -> str:
    return f"{id:020d}"


def read_handle(handle: str) -> tuple[str, int]:
    """The token and the id of a receipt handle."""
    found = _HANDLE.fullmatch(handle)
    if found is None:
        raise Fault("ReceiptHandleIsInvalid", f"the receipt handle {handle!r:.80} is not one of ours")
    return found[1], int(found[2])


def _place(account: str, name: str) -> Place:
    try:
        return Place(namespace_of(account), checked(name))
    except Fault as fault:
        raise Fault("InvalidAddress", fault.message) from None


def _only(principal: Principal) -> str:
    """The namespace that all rights of a caller are in; empty if there are several."""
    spaces = {grant.namespace for grant in principal.grants}
    return spaces.pop() if len(spaces) == 1 and ANY not in spaces else ""
