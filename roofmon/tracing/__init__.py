"""What happens inside traced programs: finding them, reading their records, statistics of launches.

A program speaks over a Unix socket (`protocol`), which `endpoints` finds and `reader` reads; neither
trusts what comes. `statistics` keeps what the stream needs of each row and forgets the records.
"""
