"""A table of payments as a team that looks for fraud would have it, made up: accounts and transfers between them.

Run it to write the two files: `python -m tests.support.payments FOLDER`.

5,000 accounts, 3 % of them fraudulent; amounts with heavy tails, missing values, times, true and false, text. Transfers
are repeated, have amounts and times, and some go from an account to itself. Fraudulent accounts are young, turn over
large sums, and pay each other.
"""

from __future__ import annotations

import csv
import datetime
import sys
from pathlib import Path
from typing import Any

import numpy as np

FRAUD = 0.03
_EPOCH = datetime.datetime(2023, 1, 1)
# Lognormal: mean and deviation of the logarithm, for honest and for fraudulent accounts.
_MONEY = {"balance": ((7.0, 1.3), (5.4, 1.5)), "monthly_turnover": ((6.5, 1.1), (8.3, 1.2))}
_MISSING = {"balance": 0.03, "age": 0.08, "country": 0.02, "opened_at": 0.02}


def make_payments(accounts: int = 5000, seed: int = 0) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """The two tables as columns; None is a missing value."""
    draw = np.random.default_rng(seed)
    fraud = np.zeros(accounts, bool)
    fraud[draw.choice(accounts, round(FRAUD * accounts), replace=False)] = True
    names = np.array([f"DE{number:08d}" for number in draw.choice(10**8, accounts, replace=False)])
    table: dict[str, list[Any]] = {"account": names.tolist()}
    for column, (honest, other) in _MONEY.items():
        log = np.where(fraud, draw.normal(*other, accounts), draw.normal(*honest, accounts))
        table[column] = np.round(np.exp(log), 2).tolist()
    table["failed_logins"] = draw.poisson(np.where(fraud, 2.2, 0.6)).tolist()
    table["age"] = np.clip(draw.normal(np.where(fraud, 33, 46), 14), 18, 95).round().astype(int).tolist()
    days = np.where(fraud, draw.beta(5, 2, accounts), draw.beta(1.2, 1.2, accounts)) * 700
    hours = np.where(fraud, draw.normal(1, 4, accounts), draw.normal(13, 4, accounts)) % 24
    table["opened_at"] = [
        str(_EPOCH + datetime.timedelta(days=int(d), hours=float(h)))[:19] for d, h in zip(days, hours, strict=True)
    ]
    table["verified"] = np.where(draw.random(accounts) < np.where(fraud, 0.55, 0.85), "true", "false").tolist()
    countries = draw.choice(["DE", "FR", "NL", "PL", "MT"], accounts, p=[0.6, 0.15, 0.1, 0.1, 0.05])
    abroad = fraud & (draw.random(accounts) < 0.3)
    table["country"] = np.where(abroad, "MT", countries).tolist()
    table["fraud"] = np.where(fraud, "yes", "no").tolist()
    for column, share in _MISSING.items():
        gone = draw.random(accounts) < share
        table[column] = [None if g else value for g, value in zip(gone, table[column], strict=True)]
    return table, _transfers(draw, names, fraud)


def _transfers(draw: np.random.Generator, names: np.ndarray, fraud: np.ndarray) -> dict[str, list[Any]]:
    """About five partners for an account, most of them paid more than once; fraudulent accounts pay each other."""
    n = len(names)
    pairs = np.stack([draw.integers(n, size=5 * n // 2), draw.integers(n, size=5 * n // 2)])
    bad = np.flatnonzero(fraud)
    ring = np.stack([draw.choice(bad, 3 * len(bad)), draw.choice(bad, 3 * len(bad))])
    pairs = np.concatenate([pairs, ring], axis=1)
    times = draw.geometric(0.5, pairs.shape[1])
    source, target = np.repeat(pairs, times, axis=1)
    loops = draw.integers(n, size=n // 50)
    source, target = np.concatenate([source, loops]), np.concatenate([target, loops])
    order = draw.permutation(len(source))
    source, target = source[order], target[order]
    amount = np.exp(draw.normal(np.where(fraud[source] & fraud[target], 6.5, 4.0), 1.4))
    seconds = draw.integers(700 * 86400, size=len(source))
    return {
        "from": names[source].tolist(),
        "to": names[target].tolist(),
        "amount": np.round(amount, 2).tolist(),
        "sent_at": [str(_EPOCH + datetime.timedelta(seconds=int(s))) for s in seconds],
    }


def write_payments(folder: Path, accounts: int = 5000, seed: int = 0) -> Path:
    """Write `accounts.csv` and `transfers.csv` into a new folder."""
    folder.mkdir(parents=True)
    for stem, table in zip(("accounts", "transfers"), make_payments(accounts, seed), strict=True):
        with (folder / f"{stem}.csv").open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(table)
            rows.writerows(zip(*table.values(), strict=True))
    return folder


# What `graphveil train` has to be told about these tables, as arguments of `read_graph`.
OPTIONS: dict[str, Any] = {
    "node_table": "accounts.csv",
    "edge_table": "transfers.csv",
    "id_column": "account",
    "label_column": "fraud",
    "source_column": "from",
    "target_column": "to",
    "drop_self_loops": True,
    "merge_duplicates": True,
}


if __name__ == "__main__":
    write_payments(Path(sys.argv[1]))
