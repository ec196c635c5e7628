"""Ids of nodes, and which node an id is: by a table over the range of integers, or by a table of hashes of words.

The table of words is filled and asked in C (`ids.c`) where that was built, else in NumPy; both find the same. Ids of
more nodes than memory holds are in a database on disk (`IdRows`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphveil.process import compiled
from graphveil.validate import decoding

# As many ids are looked up together; temporary arrays of more would cost new memory each time.
_AT_ONCE = 2**15
# Integer ids that fill at least this part of their range are looked up in a table over the range.
_FILLED = 0.25
# Longer words, in bytes, are looked up by Arrow. UUIDs have 36. `ids.c` has room for as many (MOST_PARTS).
_LONGEST_WORD = 40
# An odd number without a pattern: 2^64 divided by the golden ratio.
_MIX = np.uint64(0x9E3779B97F4A7C15)
# A word is looked for in as many slots; if there are more with the same hash, Arrow looks all of them up.
_MOST_STEPS = 500
# For each number of letters up to eight, the bits that they take.
_TAKEN = np.array([2 ** (8 * count) - 1 for count in range(9)], np.uint64)
_INTEGER = "^(0|-?[1-9][0-9]{0,17})$"


class NodeIds:
    """Distinct ids, int64 or text, in the order of the nodes."""

    def __init__(self, ids: pa.Array) -> None:
        self.ids = ids
        self._places: np.ndarray | None = None
        self._words: _WordTable | None = None
        if not pa.types.is_integer(ids.type):
            self._words = _WordTable.of(ids)
            return
        numbers = ids.to_numpy(zero_copy_only=False)
        self._least, self._most = int(numbers.min()), int(numbers.max())
        if self._most - self._least < len(numbers) / _FILLED:
            self._places = np.full(self._most - self._least + 1, -1, np.int32)
            self._places[numbers - self._least] = np.arange(len(numbers))

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def are_words(self) -> bool:
        """Whether ids are text that is found in a table of words."""
        return self._words is not None

    def positions(self, values: pa.Array) -> np.ndarray:
        """The node of each of these ids, -1 where there is none."""
        if self._places is not None and pa.types.is_integer(values.type):
            return self._of_numbers(values.to_numpy(zero_copy_only=False), self._places)
        if self._words is not None and values.type == pa.large_string():
            found = self._words.nodes(values)
            if found is not None:
                return found
        ids = self.ids
        if values.type != ids.type:  # integers here, text there: compare as text
            values, ids = values.cast(pa.large_string()), ids.cast(pa.large_string())
        return pc.index_in(values, value_set=ids).fill_null(-1).to_numpy(zero_copy_only=False)

    def _of_numbers(self, numbers: np.ndarray, places: np.ndarray) -> np.ndarray:
        positions = np.empty(len(numbers), np.int32)
        for at in range(0, len(numbers), _AT_ONCE):
            # What is below the least id becomes a large number.
            where = (numbers[at : at + _AT_ONCE].astype(np.int64) - self._least).view(np.uint64)
            found = positions[at : at + _AT_ONCE]
            places.take(where.view(np.int64), out=found, mode="clip")
            if where.max() >= len(places):
                found[where >= len(places)] = -1
        return positions

    def first_again(self) -> tuple[int, int] | None:
        """The first row whose id was given before, and the row that it was given to; None: all ids differ."""
        if pa.types.is_integer(self.ids.type):
            if np.diff(np.sort(self.ids.to_numpy(zero_copy_only=False))).all():
                return None
        elif self._words is not None and self._words.distinct:
            return None
        first = pc.index_in(self.ids, value_set=self.ids).to_numpy(zero_copy_only=False)
        again = np.flatnonzero(first != np.arange(len(first)))
        return (int(again[0]), int(first[again[0]])) if len(again) else None


def plain_words(texts: pa.Array, longest: int) -> bool:
    """Whether no text is empty or longer than this, and all letters are ASCII without blanks."""
    if len(texts) == 0:
        return False
    starts, letters = _starts(texts), _letters(texts)
    if len(letters) == 0 or letters.min() <= ord(" ") or letters.max() > ord("~"):
        return False
    lengths = np.diff(starts)
    return bool(lengths.min() > 0 and lengths.max() <= longest)


def texts_in_numpy(texts: pa.Array) -> np.ndarray:
    """Texts as `np.array` makes them of a list: all of them as wide as the longest."""
    if not plain_words(texts, _LONGEST_WORD):
        return np.array(texts.to_pylist())
    starts, letters = _starts(texts), _letters(texts)
    width = int(np.diff(starts).max())
    # Words as bytes, with zeros after the end of each, which are no letters.
    places = starts[:-1, None] - starts[0] + np.arange(width)
    padded = np.where(places < starts[1:, None] - starts[0], letters.take(places, mode="clip"), np.uint8(0))
    return padded.view(f"S{width}")[:, 0].astype(f"U{width}")


def _starts(texts: pa.Array) -> np.ndarray:
    """Where each text begins, and where the last one ends."""
    return np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]


def _letters(texts: pa.Array) -> np.ndarray:
    """The bytes of all texts."""
    starts = _starts(texts)
    return np.frombuffer(texts.buffers()[2] or b"", np.uint8)[int(starts[0]) : int(starts[-1])]


class _WordTable:
    """The nodes of words, in slots that follow from a hash of their letters.

    A word whose slot is taken is in the next free one. What is found is compared letter by letter, eight at a time.
    """

    def __init__(self, words: int, longest: int) -> None:
        slots = 2 ** (2 * words - 1).bit_length()
        self._parts = -(-longest // 8)
        # In each slot eight letters of the word, from the first on, then the next eight, and so on; at the end its node
        # plus 1. 0 there: it is free.
        self._table = np.zeros((slots, self._parts + 1), np.uint64)
        self._shift = np.uint64(65 - slots.bit_length())
        self.distinct = True
        self._library = compiled_library()
        self._given = _CTable.of(self._table, int(self._shift))

    @classmethod
    def of(cls, words: pa.Array) -> _WordTable | None:
        """The table of these words; None where Arrow has to look them up.

        That is so if a word is empty or long, if a letter is zero, or if too many words have the same hash.
        """
        if words.type != pa.large_string() or words.null_count or len(words) == 0:
            return None
        lengths = np.diff(_starts(words))
        if not 0 < lengths.min() <= lengths.max() <= _LONGEST_WORD or _letters(words).min() == 0:
            return None
        table = cls(len(words), int(lengths.max()))
        all_added = all(table._add(words.slice(at, _AT_ONCE), at) for at in range(0, len(words), _AT_ONCE))
        return table if all_added else None

    def _add(self, words: pa.Array, first: int) -> bool:
        """Put words, which are the nodes from `first` on, into free slots; whether there was one for each."""
        if self._library is not None:
            outcome = self._library.graphveil_add_words(self._given, _CTexts.of(words), len(words), first)
            self.distinct = self.distinct and outcome == 0
            return bool(outcome < 2)
        keys, nodes = self._packed(words), np.arange(first + 1, first + len(words) + 1, dtype=np.uint64)
        slots = self._slots(keys)
        for _ in range(_MOST_STEPS):
            same, free = self._same(keys, slots), self._table[slots, -1] == 0
            self.distinct = self.distinct and not same.any()
            self._table[slots[free], -1] = nodes[free]  # of several words for one slot, the last gets it
            placed = self._table[slots, -1] == nodes
            for part, key in enumerate(keys):
                self._table[slots[placed], part] = key[placed]
            left = np.flatnonzero(~(placed | same))
            if len(left) == 0:
                return True
            # A slot that another of these words got is looked at again: that word may be the same.
            keys, nodes = [key[left] for key in keys], nodes[left]
            slots = slots[left] + ~free[left] & len(self._table) - 1
        return False

    def nodes(self, words: pa.Array) -> np.ndarray | None:
        """The node of each word, -1 where there is none; None if a letter is zero."""
        if _letters(words).min(initial=1) == 0:
            return None
        found = np.empty(len(words), np.int32)
        if self._library is not None:
            self._library.graphveil_find_words(self._given, _CTexts.of(words), len(words), found.ctypes.data)
            return found
        for at in range(0, len(words), _AT_ONCE):
            some = words.slice(at, _AT_ONCE)
            found[at : at + _AT_ONCE] = self._find(self._packed(some))
            longer = np.diff(_starts(some)) > 8 * self._parts
            if longer.any():
                found[at : at + _AT_ONCE][longer] = -1
        return found

    def _find(self, keys: list[np.ndarray]) -> np.ndarray:
        slots = self._slots(keys)
        same, nodes = self._same(keys, slots), self._nodes_in(slots)
        found = np.where(same, nodes, np.int32(-1))
        rows = np.flatnonzero(~same & (nodes >= 0))
        keys, slots = [key[rows] for key in keys], slots[rows]
        while len(rows):
            slots = slots + 1 & len(self._table) - 1
            same, nodes = self._same(keys, slots), self._nodes_in(slots)
            found[rows[same]] = nodes[same]
            left = np.flatnonzero(~same & (nodes >= 0))
            rows, keys, slots = rows[left], [key[left] for key in keys], slots[left]
        return found

    def _nodes_in(self, slots: np.ndarray) -> np.ndarray:
        """The nodes in these slots, -1 where one is free."""
        return self._table[slots, -1].astype(np.int32) - np.int32(1)

    def _same(self, keys: list[np.ndarray], slots: np.ndarray) -> np.ndarray:
        """Whether these words are the ones in these slots."""
        same = self._table[slots, 0] == keys[0]
        for part, key in enumerate(keys[1:], start=1):
            same &= self._table[slots, part] == key
        return same

    def _slots(self, keys: list[np.ndarray]) -> np.ndarray:
        """The first slot that these words may be in."""
        mixed = keys[0] * _MIX
        for key in keys[1:]:
            mixed ^= mixed >> np.uint64(32)
            mixed ^= key
            mixed *= _MIX
        mixed ^= mixed >> np.uint64(32)
        mixed *= _MIX
        mixed >>= self._shift
        return mixed.view(np.int64)

    def _packed(self, words: pa.Array) -> list[np.ndarray]:
        """Eight letters of each word, then the next eight, and so on, with zeros after its end."""
        starts, letters = _starts(words), _letters(words)
        padded = np.zeros(len(letters) // 8 + self._parts + 1, "<u8")
        padded.view(np.uint8)[: len(letters)] = letters
        at, lengths = starts[:-1] - starts[0], np.diff(starts)
        # A word begins anywhere among the eight bytes of a number, and so goes on in the next one.
        number, shift = at >> 3, ((at & 7) << 3).view(np.uint64)
        parts = []
        for place in range(self._parts):
            low = padded.take(number + place, mode="clip") >> shift
            high = padded.take(number + (place + 1), mode="clip") << np.uint64(1) << np.uint64(63) - shift
            taken = _TAKEN.take(lengths - 8 * place, mode="clip")
            parts.append((low | high) & taken)
        return parts


class _CTable(ctypes.Structure):
    """A table of words as `ids.c` reads it; it keeps alive what it points at."""

    _fields_ = (
        ("slots", ctypes.c_void_p),
        ("parts", ctypes.c_size_t),
        ("mix", ctypes.c_uint64),
        ("shift", ctypes.c_uint),
        ("bits", ctypes.c_uint),
        ("most_steps", ctypes.c_size_t),
    )

    @classmethod
    def of(cls, table: np.ndarray, shift: int) -> _CTable:
        made = cls(table.ctypes.data, table.shape[1] - 1, int(_MIX), shift, 64 - shift, _MOST_STEPS)
        made.kept = table
        return made


class _CTexts(ctypes.Structure):
    """Texts as `ids.c` reads them; it keeps alive what it points at."""

    _fields_ = (("starts", ctypes.c_void_p), ("letters", ctypes.c_void_p), ("end", ctypes.c_void_p))

    @classmethod
    def of(cls, texts: pa.Array) -> _CTexts:
        starts, letters = _starts(texts), _letters(texts)
        first = letters.ctypes.data - int(starts[0])
        made = cls(starts.ctypes.data, first, letters.ctypes.data + len(letters))
        made.kept = starts, letters
        return made


def load(path: str) -> ctypes.CDLL:
    """`ids.c` as a shared library, with the types of its functions."""
    library = ctypes.CDLL(path)
    given: tuple[Any, ...] = (ctypes.POINTER(_CTable), ctypes.POINTER(_CTexts), ctypes.c_size_t)
    library.graphveil_add_words.argtypes = (*given, ctypes.c_uint64)
    library.graphveil_add_words.restype = ctypes.c_int
    library.graphveil_find_words.argtypes = (*given, ctypes.c_void_p)
    library.graphveil_find_words.restype = None
    return library


@cache
def compiled_library() -> ctypes.CDLL | None:
    """The library that the installation built, or None if there is none or it cannot be loaded."""
    return compiled("graph.io._ids", load, "NumPy's lookup of words is")


def numbered(ids: pa.Array) -> np.ndarray:
    """Ids as whole numbers, -1 where an id is not one or is not spelled as one."""
    if pa.types.is_integer(ids.type):
        return np.asarray(ids.to_numpy(zero_copy_only=False))
    spelled = pc.match_substring_regex(ids, _INTEGER)
    return np.asarray(pc.if_else(spelled, ids, "-1").cast(pa.int64()).to_numpy(zero_copy_only=False))


class IdRows:
    """Which row each id has: ids of any type, in a DuckDB database on disk, found again with a stated memory.

    Args:
        path: The database file.
        memory: Bytes that DuckDB may use; what does not fit is written beside the database.
    """

    def __init__(self, path: Path, memory: int) -> None:
        import duckdb

        self._path = path
        with decoding(path, "a database of ids"):
            self._database = duckdb.connect(
                str(path),
                config={
                    "memory_limit": f"{memory}B",
                    "temp_directory": f"{path}.tmp",
                    "preserve_insertion_order": "false",
                },
            )

    def fill(self, ids: Iterator[pa.Array]) -> int:
        """Take all ids, in the order of their rows; returns how many there are."""
        count, made = 0, False
        for some in ids:
            # DuckDB finds this table by the name of the variable.
            taken = pa.table({"id": some, "row": np.arange(count, count + len(some))})  # noqa: F841
            with _room_for(self._path):
                self._database.execute("INSERT INTO ids FROM taken" if made else "CREATE TABLE ids AS FROM taken")
            count, made = count + len(some), True
        with _room_for(self._path):
            self._database.execute("CHECKPOINT")
        return count

    def first_repeat(self) -> tuple[int, int] | None:
        """The first row whose id an earlier row has, and the first of these; None if all ids are different."""
        repeated = "SELECT id, min(row) AS first FROM ids GROUP BY id HAVING count(*) > 1"
        query = f"SELECT row, first FROM ids JOIN ({repeated}) USING (id) WHERE row > first ORDER BY row LIMIT 1"
        with _room_for(self._path):
            found: list[tuple[int, int]] = self._database.execute(query).fetchall()
        return found[0] if found else None

    def of(self, values: pa.Array) -> np.ndarray:
        """The row of each of these ids, -1 where there is none."""
        rows = np.full(len(values), -1, np.int64)
        asked = pa.table({"id": values, "place": np.arange(len(values))})  # noqa: F841
        ((kind,),) = self._database.execute("SELECT typeof(id) FROM ids LIMIT 1").fetchall()
        as_text = (kind == "VARCHAR") != (not pa.types.is_integer(values.type))
        equal = "asked.id::VARCHAR = ids.id::VARCHAR" if as_text else "asked.id = ids.id"
        with _room_for(self._path):
            found = self._database.sql(f"SELECT place, row FROM asked JOIN ids ON {equal}").to_arrow_table()
        rows[found.column("place").to_numpy()] = found.column("row").to_numpy()
        return rows

    def close(self) -> None:
        self._database.close()


@contextmanager
def _room_for(path: Path) -> Iterator[None]:
    """Say in one line, as an `OSError`, that a database has no room on the disk or in its memory."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        raise OSError(str(error).splitlines()[0].replace(f'"{path.parent}/', '"')) from None
