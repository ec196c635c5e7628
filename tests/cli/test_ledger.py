import json


def test_trainings_on_the_same_people(run, tmp_path):
    path = tmp_path / "people.json"
    words = ("train", "--method", "mlp", "--steps", 3, "--seed", 0, "--ledger", path)
    assert "% used" in run(*words, "--epsilon", 1, "--ledger-limit", 2).stdout
    result = json.loads(run(*words, "--epsilon", 0.5, "--json").stdout)["ledger"]
    assert set(result) == {"epsilon", "delta", "limit", "used", "left"}
    before = path.read_bytes()
    refused = run(*words, "--epsilon", 4)
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "nothing was drawn" in refused.stderr
    assert path.read_bytes() == before
    shown = run("ledger", path)
    assert "  2. " in shown.stdout
    assert "left: one more training of about epsilon" in shown.stdout
    raised = json.loads(run("ledger", path, "--limit", 20, "--json").stdout)
    assert raised["limit"] == 20
    assert len(raised["entries"]) == 2
    assert run(*words, "--epsilon", 4).returncode == 0


def test_what_cannot_be(run, tmp_path):
    path, device = tmp_path / "people.json", tmp_path / "device"
    device.symlink_to("/dev/null")
    for words, message in (
        (("ledger", path), "there is no such file"),
        (("ledger", path, "--limit", 1), "there is no such file"),
        (("train", "--ledger-limit", 3), "name the file"),
        (("train", "--ledger", path, "--ledger-limit", 0), "ledger_limit = 0.0"),
        (("train", "--ledger", path, "--budget", 9, "--out", tmp_path / "run"), "are not in the --ledger"),
        (("train", "--ledger", path, "--level", "none"), "protects nothing"),
        (("train", "--ledger", tmp_path), "cannot be"),
        (("train", "--ledger", device), "must be an ordinary file"),
        (("ledger", device), "must be an ordinary file"),
    ):
        done = run(*words)
        assert done.returncode == 2, words
        assert message in done.stderr
        assert not path.exists()
