import numpy as np
import pytest

from ipj_edge.errors import ConfigError
from ipj_edge.exits import ExitShares

CERTIFIED = (1400, 600, 250)


def run(shares: ExitShares, probabilities: list[float], samples: int, seed: int = 0) -> list[str]:
    random = np.random.default_rng(seed)
    exits = random.choice(3, samples, p=probabilities)
    return [warning for exit_index in exits if (warning := shares.add(int(exit_index))) is not None]


def certified_shares() -> list[float]:
    return [count / sum(CERTIFIED) for count in CERTIFIED]


@pytest.mark.parametrize("seed", range(5))
def test_data_like_those_of_the_tuning_never_warn(seed: int) -> None:
    assert run(ExitShares(CERTIFIED), certified_shares(), 20_000, seed) == []


def test_true_shares_that_differ_from_the_counted_ones_by_chance_do_not_warn() -> None:
    # 2,250 samples tell a share of 62.2 % from 59 %, but not to one in a million.
    assert run(ExitShares(CERTIFIED), [0.59, 0.29, 0.12], 30_000) == []


def test_shares_that_leave_the_band_warn_once_and_say_what_to_do() -> None:
    shares = ExitShares(CERTIFIED)
    warnings = run(shares, [0.3, 0.3, 0.4], 10_000)
    assert len(warnings) == 1
    assert warnings[0].startswith("exit 0 answered ")
    assert "it was 62.2 % (between " in warnings[0]
    assert "the certificate does not cover them; tune again on such data" in warnings[0]
    assert shares.total == 10_000


def test_a_sudden_change_after_a_long_quiet_time_is_seen_within_two_blocks() -> None:
    shares = ExitShares(CERTIFIED)
    assert run(shares, certified_shares(), 50_000) == []
    assert len(run(shares, [0.3, 0.4, 0.3], 2000)) == 1


def test_a_small_change_is_seen_when_it_lasts() -> None:
    shares = ExitShares((14_000, 6_000, 2_500))
    assert len(run(shares, [0.67, 0.24, 0.09], 60_000)) == 1


def test_an_exit_that_nothing_left_at_may_not_suddenly_answer() -> None:
    shares = ExitShares((0, 700, 300))
    random = np.random.default_rng(0)
    warnings = [shares.add(int(k)) for k in random.choice(3, 3000, p=[0.1, 0.6, 0.3])]
    assert next(w for w in warnings if w).startswith("exit 0 answered")


def test_batches_count_like_their_samples() -> None:
    one, many = ExitShares(CERTIFIED, block=100), ExitShares(CERTIFIED, block=100)
    random = np.random.default_rng(0)
    said: list[list[str]] = [[], []]
    for _ in range(200):
        leavers = random.multinomial(25, [0.4, 0.3, 0.3])
        warning = many.add_batch(leavers.tolist())
        said[1] += [warning] if warning else []
        exits = np.repeat([0, 1, 2], leavers)
        said[0] += [w for k in exits if (w := one.add(int(k)))]
    assert one.counts == many.counts
    assert said[0] == said[1] != []
    assert one.shares == pytest.approx([0.4, 0.3, 0.3], abs=0.05)


def test_before_the_first_sample_there_are_no_shares() -> None:
    assert ExitShares(CERTIFIED).shares is None
    with pytest.raises(ConfigError, match="no certified shares"):
        ExitShares((0, 0))
