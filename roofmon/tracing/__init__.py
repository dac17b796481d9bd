"""What happens inside programs: finding them, reading their records, what becomes of their launches.

Annotated programs speak over a Unix socket (`protocol`), programs with the injected library (`inject`) over
another one (`trace_protocol`). `endpoints` finds both, `reader` and `trace_reader` read them; none of them
trusts what comes. `statistics` keeps what the stream needs of each row and forgets the records, `activity`
what a device did over time, `inside` the kernels' time for regions. `demangle`, `names` and `occupancy` say
what a kernel is called and how much of a multiprocessor it can fill.
"""
