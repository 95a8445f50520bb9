import pytest

from ipj_edge.energy import choose_probe, minimum_window_s
from ipj_edge.errors import ConfigError, MissingDependencyError, ProbeUnavailableError
from ipj_edge.testing.sensors import HandCounter, HandProbe
from ipj_edge.values import ProbeFacts, ProbeOptions, Rail


def sensor(name, boundary="package", provenance="measured"):
    facts = ProbeFacts(name=name, boundary=boundary, provenance=provenance, update_interval_s=0.001)
    return HandProbe(HandCounter(facts, [Rail(name="rail", boundary=boundary)], lambda: 0.0))


REFUSED = HandProbe(None, name="rapl", reason="present but not permitted", fix="sudo chmod a+r …")
NO_PORT = HandProbe(None, name="ppk2", reason="no port was given", fix="--port /dev/ttyACM0")
MODEL = sensor("modelled", "process", "modelled")


def choose(probes, name="auto", **arguments):
    known = {probe.name: probe for probe in probes}
    return choose_probe(name, load=known.__getitem__, installed=tuple(known), **arguments)


def test_auto_takes_the_boundary_the_target_likes_best():
    probes = [sensor("battery", "battery"), sensor("rapl", "package"), sensor("nvml", "gpu"), MODEL]
    assert choose(probes, boundaries=("package", "battery")).name == "rapl"
    assert choose(probes, boundaries=("battery", "package")).name == "battery"
    assert choose(probes, boundaries=("gpu",)).name == "nvml"
    assert choose(probes).name == "rapl"


def test_auto_prefers_a_measured_figure_over_a_vendors_model_of_the_same_boundary():
    probes = [sensor("a", provenance="vendor-modelled"), sensor("b"), MODEL]
    assert choose(probes, boundaries=("package",)).name == "b"


def test_auto_falls_to_the_model_labelled_and_tells_the_remedy_but_not_of_ports():
    choice = choose([REFUSED, NO_PORT, MODEL], boundaries=("package", "process"))
    assert choice.name == str(choice) == "modelled"
    assert "CPU time stands in" in choice.note
    assert "not permitted (fix: sudo chmod a+r …)" in choice.note
    assert "ppk2" not in choice.note
    assert [one.probe for one in choice.tried] == ["rapl", "ppk2"]


def test_the_note_of_the_model_offers_no_meter_that_hangs_nowhere(tmp_path):
    """The installed probes, on a machine without a sensor: a reader of the figure is not told of every meter."""
    note = choose_probe(options=ProbeOptions(sysfs_root=str(tmp_path), search_path="")).note
    assert "CPU time stands in" in note
    assert "--port" not in note


def test_auto_with_a_sensors_own_estimate_is_no_measurement():
    estimate = [sensor("rpi5", "board", "modelled"), MODEL]
    assert choose(estimate).name == "rpi5"
    assert "modelled" in choose(estimate).note
    with pytest.raises(ProbeUnavailableError, match="the figures of 'rpi5' are modelled"):
        choose(estimate, require_measured=True)


def test_auto_never_reports_the_hosts_package_as_an_accelerators_energy():
    choice = choose([sensor("rapl"), sensor("battery", "battery"), MODEL], boundaries=("board", "wall"))
    assert choice.name == "none"
    assert "external meter" in choice.note


def test_a_gpu_alone_never_stands_for_a_whole_command():
    assert choose([sensor("nvml", "gpu"), MODEL]).name == "modelled"


def test_auto_offers_a_port_to_no_probe():
    class Greedy:
        name = "ppk2"

        def availability(self, options):
            assert options.port is None
            return NO_PORT.availability(options)

    choice = choose([Greedy(), MODEL], options=ProbeOptions(port="/dev/ttyACM0"))
    assert choice.name == "modelled"


def test_a_probe_whose_package_is_missing_is_passed_over_with_the_command_that_brings_it():
    def load(name):
        if name == "nvml":
            raise MissingDependencyError("nvml", "pynvml")
        return MODEL

    choice = choose_probe("auto", load=load, installed=("nvml", "modelled"), boundaries=("gpu", "process"))
    assert "pip install 'ipj-edge[nvml]'" in str(choice.tried[0])


@pytest.mark.parametrize("name", ["auto", "modelled"])
def test_a_required_measurement_is_not_met_by_the_model(name):
    with pytest.raises(ProbeUnavailableError, match="measured figure is required") as caught:
        choose([REFUSED, MODEL], name, require_measured=True)
    assert caught.value.exit_code == 8
    if name == "auto":
        assert "sudo chmod" in str(caught.value)


def test_a_required_measurement_is_not_met_by_no_probe():
    with pytest.raises(ProbeUnavailableError):
        choose([MODEL], "none", require_measured=True)


def test_a_vendors_counter_meets_a_required_measurement():
    assert choose([sensor("rapl", provenance="vendor-modelled")], require_measured=True).name == "rapl"


def test_no_probe_at_all_says_so():
    assert choose([]).name == "none"


def facts(**changes):
    values = {"name": "p", "boundary": "board", "provenance": "measured", "update_interval_s": 0.1}
    return ProbeFacts(**(values | changes))


@pytest.mark.parametrize(
    ("update_s", "error", "seconds"),
    [(0.001, 0.01, 0.2), (0.1, 0.01, 20.0), (0.5, 0.01, 100.0), (1.0, 0.05, 40.0)],
)
def test_the_window_is_two_updates_over_the_error(update_s, error, seconds):
    assert minimum_window_s(facts(update_interval_s=update_s), error) == pytest.approx(seconds)


def test_the_energy_step_asks_for_its_own_length():
    plug = facts(update_interval_s=1.0, quantum_j=3600.0)
    assert minimum_window_s(plug, 0.01) == pytest.approx(200.0)
    assert minimum_window_s(plug, 0.01, 300.0) == pytest.approx(1200.0)
    assert minimum_window_s(plug, 0.01, 1e9) == pytest.approx(200.0)


def test_a_coarse_power_step_is_out_of_reach_of_any_window():
    bmc = facts(name="ipmi", resolution_w=1.0)
    with pytest.raises(ProbeUnavailableError, match="'ipmi' cannot reach ±1 % at 20 W"):
        minimum_window_s(bmc, 0.01, 20.0)
    assert minimum_window_s(bmc, 0.05, 20.0) == pytest.approx(4.0)


@pytest.mark.parametrize("error", [0.0, 1.0, -0.1, float("nan")])
def test_an_error_that_is_no_share_is_refused(error):
    with pytest.raises(ConfigError, match="above 0 and below 100 %"):
        minimum_window_s(facts(), error)
