import json

import pytest
from click.testing import CliRunner

from ipj_edge import plugins
from ipj_edge.cli.machine.probes import command
from ipj_edge.errors import PluginNotFoundError
from ipj_edge.testing import powercap


def run(*arguments):
    result = CliRunner().invoke(command, arguments)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_installed_probe_is_listed_with_its_state(tmp_path):
    tree = powercap.masked_container(tmp_path / "sys")
    text = run("--sysfs-root", str(tree.sysfs))
    for name in plugins.names(plugins.POWER_PROBES):
        assert name in text
    assert "rapl: RAPL is masked" in text
    assert "fix: run the container with -v /sys:/host/sys:ro" in text


def test_the_json_list_holds_facts_or_a_reason(tmp_path):
    tree = powercap.two_sockets(tmp_path / "sys")
    reports = {report["name"]: report for report in json.loads(run("--json", "-", "--sysfs-root", str(tree.sysfs)))}
    assert set(reports) == set(plugins.names(plugins.POWER_PROBES))
    for report in reports.values():
        assert report["available"] == (report["facts"] is not None)
        assert report["available"] or report["reason"]
    facts = reports["rapl"]["facts"]
    assert facts["boundary"] == "package"
    assert facts["provenance"] == "measured"
    assert facts["update_interval_s"] == 0.001


def test_describe_shows_zones_and_which_are_added(tmp_path):
    tree = powercap.laptop(tmp_path / "sys")
    text = run("--describe", "rapl", "--sysfs-root", str(tree.sysfs))
    assert "rail package-0 (package): added" in text
    assert "rail core-0 (package): shown, not added" in text
    assert "rail psys (board): shown, not added" in text
    assert "accuracy: not stated" in text
    document = json.loads(run("--describe", "rapl", "--json", "-", "--sysfs-root", str(tree.sysfs)))
    assert [rail["name"] for rail in document["rails"] if rail["counted"]] == ["package-0"]


def test_describe_of_a_probe_that_is_not_there_says_why(tmp_path):
    text = run("--describe", "rapl", "--sysfs-root", str(tmp_path))
    assert "rapl: not available" in text
    assert "why: no RAPL zones" in text


def test_an_unknown_probe_is_refused():
    with pytest.raises(PluginNotFoundError, match="modelled"):
        run("--describe", "nonesuch")


@pytest.mark.parametrize(
    "words",
    [
        ("probes",),
        ("measure", "--", "true"),
        ("bench", "nothing.ipj"),
        ("exits", "tune", "nothing.ipj", "--data", "nothing.npz"),
    ],
)
def test_a_port_without_its_meter_is_refused_and_offered_to_no_probe(ipj_edge_here, words):
    """Every serial probe would speak its own protocol to it in turn, or none would and nobody were told."""
    ran = ipj_edge_here(words[0], *words[1:2], "--port", "/dev/ttyACM0", *words[2:]) if words[0] == "exits" else (
        ipj_edge_here(words[0], "--port", "/dev/ttyACM0", *words[1:])
    )  # fmt: skip
    assert ran.code == 2, ran
    assert "--port /dev/ttyACM0 belongs to one meter" in ran.err
