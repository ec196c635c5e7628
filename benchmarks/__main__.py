"""Runs the benchmarks, prints a table, writes JSON and, after a complete run, the page in docs/results."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from benchmarks import (
    default_time,
    distributed,
    embedding_step,
    exact_sums,
    growth,
    linear_steps,
    noise_rate,
    reading,
    report,
    scale,
    serving,
    startup,
    whole_fit,
)
from benchmarks.result import Section

_BENCHMARKS: dict[str, Callable[[bool], Section]] = {
    "step": embedding_step.run,
    "fit": whole_fit.run,
    "growth": growth.run,
    "noise": noise_rate.run,
    "serve": serving.run,
    "scale": scale.run,
    "processes": distributed.run,
    "exact": exact_sums.run,
    "startup": startup.run,
    "reading": reading.run,
    "steps": linear_steps.run,
    "default": default_time.run,
}
_PAGE = Path("docs/results/benchmarks.md")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, epilog="example: python -m benchmarks --quick --only step"
    )
    parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer rounds: under ten minutes")
    parser.add_argument("--only", choices=_BENCHMARKS, action="append", help="run this one; may be repeated")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/latest.json"), metavar="PATH")
    arguments = parser.parse_args()
    sections = []
    for name in arguments.only or _BENCHMARKS:
        section = _BENCHMARKS[name](arguments.quick)
        report.show(section)
        sections.append(section)
    report.write_json(sections, arguments.json, keep_others=bool(arguments.only))
    if not arguments.quick and not arguments.only:
        report.write_page(sections, _PAGE, "make bench")


if __name__ == "__main__":
    main()
