"""Facebook100: friendships within one school in September 2005 (https://arxiv.org/abs/1102.2166).

A node is a person; the target is the class year. Features are the one-hot codes of status, gender, major, minor and
housing, 0 meaning "not given". People without a year and years with fewer than 1,000 people are left out, then
people without friends, as in GAP (https://arxiv.org/abs/2203.00949).

=========== ====== ========= ======== =======
school      nodes  edges     features classes
=========== ====== ========= ======== =======
UIllinois20 26,406 2,117,924 501      6
Berkeley13  18,939 1,354,934 437      6
Wisconsin87 17,667 1,090,990 613      5
=========== ====== ========= ======== =======
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from graphveil.errors import InvalidInput
from graphveil.graph.graph import Graph
from graphveil.storage.decoding import decoding

ADDRESS = "https://github.com/sisaman/pyg-datasets/raw/main/datasets/facebook100"
COLUMNS = ("status", "gender", "major", "minor", "housing", "year")
MIN_CLASS = 1000

SCHOOLS = tuple(
    """
    American75 Amherst41 Auburn71 BC17 BU10 Baylor93 Berkeley13 Bingham82 Bowdoin47 Brandeis99 Brown11 Bucknell39 Cal65
    Caltech36 Carnegie49 Colgate88 Columbia2 Cornell5 Dartmouth6 Duke14 Emory27 FSU53 GWU54 Georgetown15 Hamilton46
    Harvard1 Haverford76 Howard90 Indiana69 JMU79 JohnsHopkins55 Lehigh96 MIT8 MSU24 MU78 Maine59 Maryland58 Mich67
    Michigan23 Middlebury45 Mississippi66 NYU9 Northeastern19 Northwestern25 NotreDame57 Oberlin44 Oklahoma97 Penn94
    Pepperdine86 Princeton12 Reed98 Rice31 Rochester38 Rutgers89 Santa74 Simmons81 Smith60 Stanford3 Swarthmore42
    Syracuse56 Temple83 Tennessee95 Texas80 Texas84 Trinity100 Tufts18 Tulane29 UC33 UC61 UC64 UCF52 UCLA26 UCSB37
    UCSC68 UCSD34 UChicago30 UConn91 UF21 UGA50 UIllinois20 UMass92 UNC28 UPenn7 USC35 USF51 USFCA72 UVA16 Vanderbilt48
    Vassar85 Vermont70 Villanova62 Virginia63 Wake73 WashU32 Wellesley22 Wesleyan43 William77 Williams40 Wisconsin87
    Yale4
    """.split()  # noqa: SIM905
)

# The file that the paper's figures are about.
GIT_BLOBS = {"UIllinois20": "140f9c6e2f4bf041abe5c7cdf838f92786420b3a"}


def git_blob_id(content: bytes) -> str:
    """The name git gives to a file with this content.

    Example:
        >>> git_blob_id(b"hello\\n")
        'ce013625030ba8dba906f756967f9e9ca394464a'
    """
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def load_school(path: Path, school: str) -> Graph:
    """The graph of one school from its `.mat` file, before filtering, without a split."""
    from scipy.io import loadmat

    expected = GIT_BLOBS.get(school)
    if expected is not None and (blob := git_blob_id(path.read_bytes())) != expected:
        raise InvalidInput("path", str(path), f"is not the published {school}.mat: git blob {blob}, not {expected}")
    with decoding(path, "a Facebook100 .mat file"):
        content = loadmat(path, variable_names=["A", "local_info"])
        people = dict(zip(COLUMNS, content["local_info"].T.astype(np.int64), strict=False))
        years = np.unique(people["year"][people["year"] > 0])
        return Graph.from_scipy(
            content["A"],
            np.concatenate([_one_hot(people[column]) for column in COLUMNS[:-1]], axis=1),
            np.where(people["year"] > 0, np.searchsorted(years, people["year"]), -1),
            directed=False,
            class_names=years.tolist(),
            name=school.lower(),
            drop_self_loops=True,
        )


def _one_hot(codes: np.ndarray) -> np.ndarray:
    """One column per code that occurs in the whole file; 0, "not given", has none."""
    values = np.unique(codes[codes > 0])
    return (codes[:, None] == values).astype(np.float32)


def download_school(school: str, folder: Path) -> None:
    """Fetch the `.mat` file from its public address into `folder`."""
    from torch_geometric.data import download_url

    download_url(f"{ADDRESS}/{school}.mat", str(folder), log=False)
