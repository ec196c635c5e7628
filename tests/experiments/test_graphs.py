from graphveil.experiments import SPECS
from graphveil.experiments.graphs import graphs_at_hand


def test_a_stand_in_keeps_its_own_name(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHVEIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GRAPHVEIL_DATA", raising=False)
    raw = tmp_path / "Berkeley13" / "raw"
    raw.mkdir(parents=True)
    (raw / "Berkeley13.mat").touch()
    spec, notes = graphs_at_hand(SPECS["figure-a"], str(tmp_path))
    assert [graph.name for graph in spec.graphs] == ["berkeley13"]
    assert notes == ["facebook is not at hand: berkeley13 stands in under its own name"]
