"""Publish, receive, settle: the shortest program that does something."""

import mqueue


def main() -> None:
    with mqueue.Broker() as q:
        q.publish("post", "a postcard", priority="low")
        q.publish("post", "a parcel")
        q.publish("post", "a heart for transplant", priority="critical")

        word = "first"
        while messages := q.receive("post"):
            for m in messages:
                with m:  # ack at the end of the block, nack on an exception
                    print(word, m.text())
            word = "then"
        print("nothing left")


if __name__ == "__main__":
    main()
# → first a heart for transplant
# → then a parcel
# → then a postcard
# → nothing left
