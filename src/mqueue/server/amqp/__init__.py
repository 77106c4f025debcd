"""AMQP 0-9-1: the face that clients of RabbitMQ speak to."""
