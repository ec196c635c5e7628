"""Which rows a hub should read so that rounding drives its sum apart from the sum with one row more.

A float32 number just below a power of two is rounded twice as finely as one just above. A hub that sits there, below in
one graph and above in the other, adds rows that cancel: each addition rounds the two sums differently, and the
differences add up with the number of rows.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import product

import numpy as np

# Tables with at most so many different values in a column are attacked by sequences of values.
_FEW = 6
_POWERS = 2
_COLUMNS = 2
# A sequence is judged by what it does when it is repeated so often.
_AHEAD = 8
_PLACES = range(-1, 3)


def chosen_readers(rows: np.ndarray, start: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Indices of rows, ascending, that drive apart the float32 sums that begin with `start` and with `other`.

    One column is attacked, that in which most is gained; without rows of both signs in any, all rows are read.
    """
    best, found = 0.0, np.arange(len(rows))
    columns = np.argsort(-np.abs(other - start), kind="stable")[:_COLUMNS]
    for column, sign in product(columns, (np.float32(1), np.float32(-1))):
        values = sign * rows[:, column].astype(np.float32)
        if other[column] != start[column] and (values > 0).any() and (values < 0).any():
            first, second = (sign * np.float32(begin[column]) for begin in (start, other))
            drive = _by_sequences if len(np.unique(values)) <= _FEW else _greedy
            apart, read = drive(values, first, second)
            gained = apart**2 - float(other[column] - start[column]) ** 2
            if gained > best:
                best, found = gained, read
    return found


def _powers(values: np.ndarray) -> list[float]:
    """The largest powers of two that a part of the positive values can reach."""
    mass = float(values[values > 0].sum())
    top = int(np.floor(np.log2(max(0.75 * mass, 2.0))))
    return [2.0**power for power in range(top, max(0, top - _POWERS), -1)]


def _by_sequences(values: np.ndarray, first: np.float32, second: np.float32) -> tuple[float, np.ndarray]:
    """The largest value up to a power of two, then again and again the three values that drive the sums apart most."""
    few = np.unique(values)
    places = {float(value): np.flatnonzero(values == value).tolist() for value in few}
    up = float(few.max())
    best, found = -1.0, np.arange(len(values))
    for power in _powers(values):
        near = int((power - float(max(first, second))) / up)
        for lead in (near + shift for shift in _PLACES):
            if 0 < lead < len(places[up]):
                apart, read = _driven(np.array([first, second]), power, places, lead)
                if apart > best:
                    best, found = apart, read
    return best, found


def _driven(sums: np.ndarray, power: float, places: dict[float, list[int]], lead: int) -> tuple[float, np.ndarray]:
    """Both sums driven apart near `power` until no rows are left; how far, and by which rows."""
    up = max(places)
    read = places[up][:lead]
    for _ in read:
        sums = sums + np.float32(up)
    sequences = np.array([each for each in product([*places, 0.0], repeat=3) if any(each)])
    steps = sequences.astype(np.float32)
    here = read[-1] + 1
    while True:
        then = np.repeat(sums[:, None], len(steps), axis=1)
        for column in np.tile(steps.T, (_AHEAD, 1)):
            then = then + column
        apart = np.abs(then[1].astype(np.float64) - then[0])
        centred = np.abs((then[0].astype(np.float64) + then[1]) / 2 - power)
        score = np.where(centred <= apart / 2, apart, -centred)  # with the power between them
        chosen = np.tile(sequences[int(np.argmax(score))], _AHEAD // 2)
        places_read = []
        for value in chosen[chosen != 0].tolist():
            at = bisect_left(places[value], here)
            if at == len(places[value]):
                return float(abs(float(sums[1]) - float(sums[0]))), np.array(read, dtype=np.int64)
            places_read.append(places[value][at])
            here = places_read[-1] + 1
        read.extend(places_read)
        for value in chosen[chosen != 0]:
            sums = sums + np.float32(value)


def _greedy(values: np.ndarray, first: np.float32, second: np.float32) -> tuple[float, np.ndarray]:
    """For values that are all different: read what keeps a power of two between the sums and drives them apart."""
    best, found = -1.0, np.arange(len(values))
    for power in _powers(values):
        low, high, read = first, second, []
        led = False
        for place, value in enumerate(values):
            below, above = np.float32(low + value), np.float32(high + value)
            straddles = bool(min(below, above) < power <= max(below, above))
            if led:
                take = straddles and abs(float(above) - float(below)) >= abs(float(high) - float(low))
            else:
                take = bool(value > 0) and (straddles or bool(max(below, above) < power))
                led = straddles
            if take:
                low, high = below, above
                read.append(place)
        apart = abs(float(high) - float(low))
        if apart > best:
            best, found = apart, np.array(read, dtype=np.int64)
    return best, found
