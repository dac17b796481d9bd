"""The collector: one process a host that owns all sources and speaks the stream. No screen here."""
