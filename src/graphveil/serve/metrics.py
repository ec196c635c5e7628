"""Counts of requests in Prometheus' text form: by route and status, never by node."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0)


class Metrics:
    """Of one process, since it started."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._by_time = [0] * (len(_BOUNDS) + 1)
        self._seconds = 0.0

    def note(self, route: str, status: int, seconds: float) -> None:
        self._requests[route, status] += 1
        self._by_time[bisect_left(_BOUNDS, seconds)] += 1
        self._seconds += seconds

    def render(self) -> str:
        lines = ["# HELP graphveil_requests_total Requests answered.", "# TYPE graphveil_requests_total counter"]
        for (route, status), count in sorted(self._requests.items()):
            lines.append(f'graphveil_requests_total{{route="{route}",status="{status}"}} {count}')
        lines += [
            "# HELP graphveil_request_seconds Time from the end of a request's head to the end of its answer.",
            "# TYPE graphveil_request_seconds histogram",
        ]
        total = 0
        for bound, count in zip((*_BOUNDS, "+Inf"), self._by_time, strict=True):
            total += count
            lines.append(f'graphveil_request_seconds_bucket{{le="{bound}"}} {total}')
        lines += [f"graphveil_request_seconds_sum {self._seconds:.6f}", f"graphveil_request_seconds_count {total}"]
        return "\n".join(lines) + "\n"
