"""Measuring the roofs of a device: probes as data, one timing loop, a cache, a worker process."""
