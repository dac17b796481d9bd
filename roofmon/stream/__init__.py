"""The one stream between a collector and its consumers: messages, reader, writer, recording."""
