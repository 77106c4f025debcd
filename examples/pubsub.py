"""One topic, many readers: each group gets every message, at its own pace; inside a group the work is shared."""

import mqueue


def names(messages: list[mqueue.Message]) -> str:
    return ", ".join(m.text() for m in messages)


def main() -> None:
    with mqueue.Broker() as q:
        q.publish_many("signups", ["Ada", "Bob", "Cyd"])

        print("mail:", names(q.receive("signups", limit=10, group="mail")))
        print("stats, one worker:", names(q.receive("signups", limit=2, group="stats")))
        print("stats, another:", names(q.receive("signups", limit=2, group="stats")))

        q.create_group("signups", "audit", start="latest")  # nothing of what was published before
        q.publish("signups", "Dan")
        print("audit, from now on:", names(q.receive("signups", limit=10, group="audit")))


if __name__ == "__main__":
    main()
# → mail: Ada, Bob, Cyd
# → stats, one worker: Ada, Bob
# → stats, another: Cyd
# → audit, from now on: Dan
