"""Which node an id belongs to."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# The longest id that a request to `graphveil serve` can hold within the limit on its body.
LONGEST_ID = 1024
# Integer ids that fill at least this part of their range are looked up in a table over the range.
_FILLED = 0.25


def why_no_id(text: str) -> str | None:
    """Why this text, without blanks around it, cannot name a node; None if it can. One rule for all that name nodes.

    Example:
        >>> why_no_id("p7"), why_no_id("")
        (None, 'an id is missing')
    """
    if not text:
        return "an id is missing"
    if text != text.strip():
        return "has blanks around it, which do not belong to an id"
    if len(text) > LONGEST_ID:
        return f"an id may have {LONGEST_ID} characters at most"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "holds half a character, which no file can"
    return None


class NodeIds:
    """Distinct ids, int64 or text, in the order of the nodes."""

    def __init__(self, ids: pa.Array) -> None:
        self.ids = ids
        self._places: np.ndarray | None = None
        if not pa.types.is_integer(ids.type):
            return
        numbers = ids.to_numpy(zero_copy_only=False)
        self._least, self._most = int(numbers.min()), int(numbers.max())
        if self._most - self._least < len(numbers) / _FILLED:
            self._places = np.full(self._most - self._least + 1, -1, np.int32)
            self._places[numbers - self._least] = np.arange(len(numbers))

    def __len__(self) -> int:
        return len(self.ids)

    def positions(self, values: pa.Array) -> np.ndarray:
        """The node of each of these ids, -1 where there is none."""
        if self._places is not None and pa.types.is_integer(values.type):
            numbers = values.to_numpy(zero_copy_only=False)
            known = (numbers >= self._least) & (numbers <= self._most)
            return np.where(known, self._places[np.where(known, numbers - self._least, 0)], np.int32(-1))
        ids = self.ids
        if values.type != ids.type:  # integers here, text there: compare as text
            values, ids = values.cast(pa.large_string()), ids.cast(pa.large_string())
        return pc.index_in(values, value_set=ids).fill_null(-1).to_numpy(zero_copy_only=False)
