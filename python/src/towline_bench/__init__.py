"""Sweeps of programs over placements, networks and remote GPUs; one table of results; figures; a report.

- :mod:`towline_bench.suite` reads what to run, :mod:`towline_bench.programs` how to read what programs print.
- :mod:`towline_bench.runner` runs it, with the launchers of :mod:`towline_bench.launch`.
- :mod:`towline_bench.table` holds all results, of this package and of ``towline``'s own files, as rows of one kind.
- :mod:`towline_bench.figures` draws them, :mod:`towline_bench.report` makes one page of it all.
"""

__version__ = "0.1.0"


class BenchError(Exception):
    """What a user can mend: the text says how."""
