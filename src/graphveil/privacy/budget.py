"""A budget over time: one file for the people of a dataset, which adds up what all trainings on them have cost.

The trainings are composed by their plans, mechanism by mechanism, which costs less than the sum of their epsilons
(docs/theory.md, section 4.6).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from graphveil import validate
from graphveil.accounting import AnyOf, Composition, Loss, gaussian_epsilon
from graphveil.accounting.composition import RENYI_ORDERS, renyi_divergences, renyi_to_epsilon
from graphveil.errors import BudgetExceeded, InvalidInput
from graphveil.privacy.facts import check_delta
from graphveil.privacy.levels import Edge, KNeighbor, Level, Node, Public, describe, level_from_dict, level_to_dict
from graphveil.privacy.mechanisms import KINDS, SAMPLER_DELTA
from graphveil.privacy.plan import Plan, plan_from_dict, plan_to_dict
from graphveil.storage import locked_whole, replace_file, unwritable
from graphveil.validate import (
    check_declared,
    check_rendered,
    decoding,
    parse_checksummed,
    render_checksummed,
    without_infinity,
)

FORMAT = "graphveil-ledger/1"


@dataclass(frozen=True)
class Entry:
    """One training.

    Args:
        plan: What it may draw: all of it counts, even if the training was killed half-way.
        started: When.
        training_set: A digest of which nodes are in training; None: not known.
        checkpoint: The folder that keeps it if it is killed; None: none does.
        finished: Whether it has ended.
    """

    plan: Plan
    started: str
    training_set: str | None = None
    checkpoint: str | None = None
    finished: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "plan": plan_to_dict(self.plan)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Entry:
        return cls(**{**data, "plan": plan_from_dict(data["plan"])})


@dataclass(frozen=True)
class Account:
    """What all trainings on the same people cost together.

    Formal guarantee (docs/theory.md, section 4.6): everything that the trainings of `entries` have released is,
    together, graph-differentially private at `level` with `delta`, for everybody who is a node of their graphs. It
    costs (1) at most `limit`, also where each training was chosen after looking at the results of earlier ones; and
    (2) `epsilon`, if all trainings were settled before the first result was seen.

    Args:
        level: What is protected; each training protects at least this.
        delta: The probability that is left out of the guarantee.
        order: The order of the Rényi divergences that are added up for the limit, settled before the first training.
        limit: The largest epsilon that is allowed; None: there is no limit.
        entries: The trainings.
    """

    level: Level
    delta: float
    order: float
    limit: float | None = None
    entries: tuple[Entry, ...] = ()

    @classmethod
    def opened(cls, plan: Plan, limit: float | None) -> Account:
        """A new one, which protects what this plan protects."""
        # The order at which the limit holds most Gaussian mechanisms. Without a limit: four such plans.
        target = 4 * plan.epsilon if limit is None else limit
        room = (target - renyi_to_epsilon(plan.delta)) / RENYI_ORDERS
        return cls(plan.level, plan.delta, float(RENYI_ORDERS[room.argmax()]), limit)

    @property
    def epsilon(self) -> float:
        """What the trainings cost if they were settled beforehand; infinite if it cannot be certified at `delta`."""
        if not self.entries:
            return 0.0
        delta = self._real_delta
        return max(Composition(losses).epsilon(delta) for losses in self._paid()) if delta > 0 else math.inf

    @property
    def used(self) -> float | None:
        """The part of the limit that is used, above 1 if it is exceeded; None if there is no limit."""
        if self.limit is None:
            return None
        return self._divergence / self._room if self._room > 0 else math.inf

    @property
    def is_within_limit(self) -> bool:
        """Whether the limit is kept. A first training was chosen before any result: its own epsilon is enough."""
        if self.limit is None or self.used is None or self.used <= 1:
            return True
        return len(self.entries) == 1 and self.epsilon <= self.limit * (1 + 1e-9)

    @property
    def left(self) -> float | None:
        """The epsilon, at `delta`, of one more Gaussian mechanism that the limit allows; None if there is no limit."""
        if self.limit is None:
            return None
        room = self._room - self._divergence
        return gaussian_epsilon(math.sqrt(2 * room / self.order), self.delta) if room > 0 else 0.0

    @property
    def _room(self) -> float:
        """The largest divergence of `order` that is within the limit."""
        assert self.limit is not None
        return self.limit - self._at_order(renyi_to_epsilon(self._real_delta)) if self._real_delta > 0 else 0.0

    @property
    def _real_delta(self) -> float:
        return self.delta - SAMPLER_DELTA * sum(entry.plan.sources for entry in self.entries)

    @property
    def _divergence(self) -> float:
        return max(self._at_order(renyi_divergences(losses)) for losses in self._paid())

    def _at_order(self, values: np.ndarray) -> float:
        return float(values[int(np.abs(RENYI_ORDERS - self.order).argmin())])

    def _paid(self) -> list[tuple[Loss, ...]]:
        """What one node pays for, for each kind of node."""
        plans = [entry.plan for entry in self.entries]
        sets = {entry.training_set for entry in self.entries}
        if len(plans) <= 1 or (len(sets) == 1 and None not in sets):
            # The same nodes are in training each time, so everybody is of one kind in all of them.
            return [tuple(loss for plan in plans for loss in plan.losses(kind)) for kind in KINDS]
        return [tuple(AnyOf(tuple(plan.losses(kind) for kind in KINDS)) for plan in plans)]

    def with_entry(self, entry: Entry) -> Account:
        """With one more training, or an error if that is not allowed; nothing is written."""
        plan = entry.plan
        if not covers(plan.level, self.level):
            why = f"the ledger is about another level ({describe(self.level)[:-1]}); take another file for this one"
            raise InvalidInput("level", level_to_dict(plan.level), why)
        more = replace(self, entries=(*self.entries, entry))
        if not more.is_within_limit:
            raise BudgetExceeded(
                f"ledger: {100 * (self.used or 0):.3g} % of the limit, epsilon {self.limit:.4g}, are used, and with "
                f"this training it would be {100 * (more.used or 0):.3g} %; nothing was drawn. Train with a smaller "
                "epsilon, or raise the limit (graphveil ledger FILE --limit)"
            )
        return more

    def to_dict(self) -> dict[str, Any]:
        """All of it, with the figures that follow."""
        return {**self.content(), "epsilon": without_infinity(self.epsilon), "used": self.used, "left": self.left}

    def content(self) -> dict[str, Any]:
        """What the file holds."""
        return {
            "level": level_to_dict(self.level),
            "delta": self.delta,
            "order": self.order,
            "limit": self.limit,
            "entries": [entry.to_dict() for entry in self.entries],
        }

    def __str__(self) -> str:
        lines = [describe(self.level)]
        for number, entry in enumerate(self.entries, start=1):
            plan, ended = entry.plan, "" if entry.finished else ", not finished (counted in full)"
            name = f"search among {len(plan.beside)} candidates" if plan.beside else plan.method
            lines.append(
                f"{number:>3}. {entry.started[:16].replace('T', ' ')}  {name}: epsilon {plan.epsilon:.4g} at "
                f"delta {plan.delta:.3g}{ended}"
            )
        total = sum(entry.plan.epsilon for entry in self.entries)
        beside = f" (added up they would be {total:.4g})" if len(self.entries) > 1 else ""
        lines.append(f"together: epsilon {self.epsilon:.4g} at delta {self.delta:.3g}{beside}")
        lines.append("  if all of them were settled before the first result was seen")
        if self.used is not None:
            share = f"{100 * self.used:.3g} % used"
            lines.append(f"limit: epsilon {self.limit:.4g}, whatever was looked at in between; {share}")
            lines.append(f"left: one more training of about epsilon {self.left:.3g}")
        return "\n".join(lines)


class BudgetLedger:
    """The file of one dataset. It is written before a training draws anything, so a kill can only waste budget.

    Args:
        path: The file; the first training makes it.
        limit: The largest epsilon that all trainings may cost together. Later it can be lowered here, and raised by
            `set_limit`.

    Raises:
        InvalidInput: The file cannot be read, or was changed by something else, or the limit is not positive or
            larger than the file's.

    Formal guarantee: if every training on these people goes through this file, all of them together satisfy what
    `account` states (`Account`).
    """

    def __init__(self, path: str | Path, *, limit: float | None = None) -> None:
        self.path = Path(path)
        self._limit = None if limit is None else validate.positive("ledger_limit", limit)
        there = self.account
        if there is not None and limit is not None and there.limit is not None and limit > there.limit:
            why = f"the ledger's limit is {there.limit:g}; to raise it: graphveil ledger {self.path} --limit {limit:g}"
            raise InvalidInput("ledger_limit", limit, why)

    @property
    def account(self) -> Account | None:
        """What the file says now; None before the first training."""
        try:
            if self.path.exists() and not self.path.is_file() and not self.path.is_dir():
                raise InvalidInput("ledger", str(self.path), "must be an ordinary file")
            data = self.path.read_bytes() if self.path.exists() else b""
        except OSError as error:
            raise InvalidInput("ledger", str(self.path), f"cannot be read: {error.strerror}") from None
        return self._parsed(data)

    def check(self, plan: Plan, training_set: str | None = None) -> None:
        """Refuse a training that the limit or the level does not allow; nothing is written.

        Args:
            plan: What the training may draw.
            training_set: A digest of which nodes are in training.

        Raises:
            BudgetExceeded: The limit would be exceeded.
            InvalidInput: The plan protects something else than the ledger.
        """
        self._opened(self.account, plan).with_entry(_entry(plan, training_set, None))

    def spend(
        self, plan: Plan, training_set: str | None = None, checkpoint: Path | None = None, resumed: bool = False
    ) -> None:
        """Write a training into the file, on disk when this returns.

        Args:
            plan: What it may draw.
            training_set: A digest of which nodes are in training.
            checkpoint: The folder that keeps it.
            resumed: It goes on from this folder, and is not counted again if it is in the file.

        Raises:
            BudgetExceeded: The limit would be exceeded. The file is as it was.
            InvalidInput: The plan protects something else, or the file cannot be written.
        """
        entry = _entry(plan, training_set, None if checkpoint is None else str(checkpoint.absolute()))

        def added(account: Account | None) -> Account:
            opened = self._opened(account, plan)
            if resumed and any(_same(entry, other) for other in opened.entries):
                return opened
            return opened.with_entry(entry)

        self._change(added)

    def finish(self, plan: Plan) -> None:
        """Note that a training has ended. This changes nothing about what it costs.

        Args:
            plan: The plan of the training; of several with the same plan the last one is meant.
        """

        def ended(account: Account | None) -> Account | None:
            if account is None:  # nothing was drawn
                return None
            entries = list(account.entries)
            for place in reversed(range(len(entries))):
                if not entries[place].finished and _unfollowed(entries[place].plan) == _unfollowed(plan):
                    entries[place] = replace(entries[place], finished=True)
                    break
            return replace(account, entries=tuple(entries))

        self._change(ended)

    def set_limit(self, limit: float) -> None:
        """Lower or raise the limit of a file that has entries.

        Args:
            limit: The largest epsilon that all trainings may cost together.

        Raises:
            InvalidInput: There is no such file, or more than this was spent already.
        """
        validate.positive("limit", limit)

        def changed(account: Account | None) -> Account:
            if account is None:
                raise InvalidInput("ledger", str(self.path), "there is no such file; the first training makes it")
            limited = replace(account, limit=float(limit))
            if not limited.is_within_limit:
                raise InvalidInput("limit", limit, "is less than what was spent already")
            return limited

        self._change(changed)

    def _opened(self, account: Account | None, plan: Plan) -> Account:
        """The account, or a new one that protects what this plan protects, with the limit that was given."""
        if isinstance(plan.level, Public):
            raise InvalidInput("ledger", str(self.path), "level none protects nothing, so there is nothing to add up")
        account = account or Account.opened(plan, self._limit)
        return account if self._limit is None else replace(account, limit=self._limit)

    def _change(self, change: Callable[[Account | None], Account | None]) -> None:
        with locked_whole(self.path) as data:
            changed = change(self._parsed(data))
            if changed is None:
                return
            try:
                replace_file(self.path, render_checksummed(FORMAT, changed.content()))
            except OSError as error:
                raise unwritable(self.path, error, "ledger") from None

    def _parsed(self, data: bytes) -> Account | None:
        if not data:
            return None
        with decoding(self.path, "a ledger of graphveil"):
            body = parse_checksummed(FORMAT, data)
            account = Account(
                level_from_dict(body["level"]),
                check_delta(body["delta"]),
                body["order"],
                body["limit"],
                tuple(Entry.from_dict(entry) for entry in body["entries"]),
            )
            check_declared(account)
            check_rendered(render_checksummed(FORMAT, account.content()), data)
        return account


def covers(level: Level, least: Level) -> bool:
    """Whether graphs that are adjacent at `least` are adjacent at `level` too, and no less of the output is protected.

    >>> covers(KNeighbor(5), KNeighbor(1)), covers(KNeighbor(1), KNeighbor(5)), covers(Node(9), Edge())
    (True, False, False)
    """
    if type(level) is not type(least) or isinstance(level, Edge):
        return level == least
    bound = {KNeighbor: "k", Node: "max_degree"}.get(type(level))
    if bound is None:
        return level == least
    mine, others = asdict(level), asdict(least)
    wide = mine.pop(bound) >= others.pop(bound)
    # A level with attributes hides links too, but its guarantee leaves out a row; so both must agree about attributes.
    return wide and mine == others


def _entry(plan: Plan, training_set: str | None, checkpoint: str | None) -> Entry:
    started = datetime.now(UTC).isoformat(timespec="seconds")
    # As it is written: a plan that was read from the file equals it.
    written = plan_from_dict(json.loads(json.dumps(plan_to_dict(plan))))
    return Entry(_unfollowed(written), started, training_set, checkpoint)


def _same(entry: Entry, other: Entry) -> bool:
    """Whether an unfinished entry is this training, which goes on."""
    return not other.finished and replace(entry, started=other.started) == other


def _unfollowed(plan: Plan) -> Plan:
    return replace(plan, followed=None)
