"""pika, as it comes, against mqueue: confirms, a topic exchange, dead letters; and the same messages without AMQP."""

import pika

import mqueue
from mqueue.config import Address, Config, Server
from mqueue.testing.server import RunningServer


def main() -> None:
    with RunningServer(Config(server=Server(amqp=Address("127.0.0.1", 0)))) as server:  # else: mqueue serve
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", server.addresses["amqp"].port))
        channel = connection.channel()
        channel.exchange_declare("shop", "topic", durable=True)
        channel.queue_declare("graves", durable=True)
        channel.queue_declare(
            "orders",
            durable=True,
            arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graves", "x-max-priority": 9},
        )
        channel.queue_bind("orders", "shop", "order.*")

        channel.confirm_delivery()  # from here on a publish returns when the message is on disk
        for body, priority in ((b"a postcard", 1), (b"a heart", 9), (b"a bomb", 5)):
            properties = pika.BasicProperties(delivery_mode=2, priority=priority)
            channel.basic_publish("shop", "order.made", body, properties, mandatory=True)

        channel.basic_qos(prefetch_count=10)
        for method, _, body in channel.consume("orders", inactivity_timeout=30):
            if body == b"a bomb":
                channel.basic_reject(method.delivery_tag, requeue=False)
                continue
            print("shipped", body.decode())
            channel.basic_ack(method.delivery_tag)
            if body == b"a postcard":
                break
        channel.cancel()
        connection.close()

        q = mqueue.Client(server.url)  # a queue is a topic, whoever looks
        for m in q.receive("graves", wait="30s"):
            with m:
                print("put aside:", m.text(), "because it was", m.headers["x-first-death-reason"])
        q.close()


if __name__ == "__main__":
    main()
# → shipped a heart
# → shipped a postcard
# → put aside: a bomb because it was rejected
