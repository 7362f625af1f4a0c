import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agents import grpo
from agents.grpo import (
    aggregate,
    group_advantages,
    importance_weights,
    k3_kl,
    masked_difference,
    masked_mean,
    policy_loss,
    token_scores,
    update_divisor,
)
from sesa_env.errors import InvalidInput

CLIP = {"clip_low": 0.2, "clip_high": 0.28}


def advantages(rewards, groups=None, *, scale="group", baseline="group"):
    groups = ["one"] * len(rewards) if groups is None else groups
    return group_advantages(torch.tensor(rewards), groups, scale=scale, baseline=baseline)


def mask(*lengths):
    longest = max(lengths)
    return torch.tensor([[position < length for position in range(longest)] for length in lengths])


# --- advantages ---


def test_samples_are_grouped_by_id_and_not_by_place():  # trap D1
    result = advantages([1.0, 0.0, 1.0, 0.0], ["p1", "p2", "p1", "p2"])
    assert result.advantage_N.tolist() == [0.0, 0.0, 0.0, 0.0]
    assert result.zero_variance_share == 1.0


@given(st.floats(-1e3, 1e3, width=32), st.integers(2, 16))
def test_equal_rewards_give_exactly_zero(reward, size):  # trap D2
    for scale in ("group", "batch", "none"):
        result = advantages([reward] * size, scale=scale)
        assert result.advantage_N.tolist() == [0.0] * size
        assert result.flat_N.all()
        assert result.zero_variance_share == 1.0


def test_the_share_of_flat_groups_counts_groups_and_not_sequences():
    result = advantages([0.0, 0.0, 0.0, 0.0, 1.0, 0.0], ["a", "a", "a", "a", "b", "b"])
    assert result.zero_variance_share == 0.5
    assert result.flat_N.tolist() == [True] * 4 + [False] * 2
    assert result.advantage_N.dtype == torch.float32
    assert result.advantage_N.shape == (6,)


def test_the_standard_deviation_is_that_of_the_population_and_can_be_left_out():  # trap D4
    rewards = [1.0] + [0.0] * 7
    assert advantages(rewards, scale="none").advantage_N[0] == 0.875
    assert advantages(rewards).advantage_N[0].item() == pytest.approx(2.6458, abs=1e-4)


def test_each_scale_gives_its_own_numbers():  # traps D5, D3
    rewards, groups = [1.0, 0.0, 1.0, 1.0], ["a", "a", "b", "b"]
    by_group = advantages(rewards, groups, scale="group")
    by_batch = advantages(rewards, groups, scale="batch")
    centred = advantages(rewards, groups, scale="none")
    assert by_group.advantage_N.tolist() == pytest.approx([1.0, -1.0, 0.0, 0.0], abs=1e-5)
    assert by_batch.advantage_N.tolist() == pytest.approx([1.1547, -1.1547, 0.0, 0.0], abs=1e-4)
    assert centred.advantage_N.tolist() == [0.5, -0.5, 0.0, 0.0]
    assert by_batch.flat_N.tolist() == [False, False, True, True]


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
@pytest.mark.parametrize("baseline", ["group", "batch"])
def test_the_better_of_two_bad_rewards_is_still_the_better(scale, baseline):  # trap D6
    better, worse = advantages([-0.2, -0.8], scale=scale, baseline=baseline).advantage_N.tolist()
    assert better > 0 > worse


def test_the_batch_baseline_ignores_groups():
    result = advantages([1.0, 0.0, 1.0, 0.0], ["a", "b", "c", "d"], baseline="batch")
    assert result.advantage_N.tolist() == pytest.approx([1.0, -1.0, 1.0, -1.0], abs=1e-5)
    assert advantages([0.3], baseline="batch").advantage_N.tolist() == [0.0]


def test_without_a_baseline_the_advantage_is_the_reward():
    result = advantages([0.5, 0.0, -1.0, 0.5], ["a", "a", "b", "b"], baseline="none", scale="none")
    assert result.advantage_N.tolist() == [0.5, 0.0, -1.0, 0.5]
    assert result.flat_N.tolist() == [False, True, False, False]
    assert result.zero_variance_share == 0.25
    assert advantages([0.3], baseline="none", scale="none").advantage_N.tolist() == [pytest.approx(0.3)]


def test_roles_and_questions_never_share_a_baseline():  # traps E14, F5
    solver = advantages([1.0, 1.0, 0.0, 0.0], ["q1", "q1", "q2", "q2"])
    challenger = advantages([-0.2, -0.2], ["t1", "t2"], baseline="batch")
    assert solver.advantage_N.tolist() == [0.0] * 4
    assert challenger.advantage_N.tolist() == [0.0] * 2
    full = advantages([1.0, 0.0, 0.0, 1.0, 0.0], ["q1", "q1", "q1", "q2", "q2"])
    one_lost = advantages([1.0, 0.0, 1.0, 0.0], ["q1", "q1", "q2", "q2"])
    assert one_lost.advantage_N[2:].tolist() == full.advantage_N[3:].tolist()
    assert one_lost.advantage_N[0].item() == pytest.approx(1.0, abs=1e-5)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.0, 0.25, 1.0])), min_size=1, max_size=12))
def test_each_group_is_centred_once(pairs):  # trap D22
    pairs = pairs + pairs  # nobody is alone
    groups, rewards = [group for group, _ in pairs], [reward for _, reward in pairs]
    result = advantages(rewards, groups).advantage_N
    for group in set(groups):
        members = [i for i, other in enumerate(groups) if other == group]
        assert result[members].sum().item() == pytest.approx(0.0, abs=1e-4)


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_no_number_is_refused(reward):  # trap D18
    with pytest.raises(InvalidInput, match=rf"finite, got {reward} at position 1"):
        advantages([0.5, reward, 0.7])


def test_a_group_of_one_is_refused_by_name():  # trap D19
    with pytest.raises(InvalidInput, match=r"at least 2 sequences .* in group 'lonely'"):
        advantages([1.0, 0.0, 1.0], ["pair", "pair", "lonely"])


@pytest.mark.parametrize(
    ("rewards", "groups", "options", "message"),
    [
        ([], [], {}, "at least one"),
        ([1.0, 0.0], ["a"], {}, "each of the 1 entries"),
        ([1.0, 0.0], ["a", "a"], {"scale": "std"}, "scale must be one of .*'std'"),
        ([1.0, 0.0], ["a", "a"], {"baseline": "mean"}, "baseline must be one of .*'mean'"),
        ([1.0, 0.0], ["a", "a"], {"baseline": "none"}, "scale must be 'none' with baseline 'none', got 'group'"),
    ],
)
def test_bad_arguments_are_named(rewards, groups, options, message):
    with pytest.raises(InvalidInput, match=message):
        advantages(rewards, groups, **options)


# --- log-probabilities ---


def test_the_temperature_of_the_sampler_is_in_the_logps():  # trap D9
    logits = torch.tensor([[[2.0, 0.0]]])
    logp, _ = token_scores(logits, torch.tensor([[0]]), temperature=0.5)
    assert logp.item() == pytest.approx(-0.01815, abs=1e-5)
    for temperature in (0.0, 1e-3, -1.0, math.nan):
        with pytest.raises(InvalidInput, match="temperature must be at least"):
            token_scores(logits, torch.tensor([[0]]), temperature=temperature)


def test_logps_are_float32_whatever_the_logits_are():
    logits_NTV = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0)).bfloat16()
    token_NT = torch.tensor([[0, 1, 2], [3, 4, 0]])
    logp_NT, entropy_NT = token_scores(logits_NTV, token_NT, temperature=1.0)
    expected = torch.distributions.Categorical(logits=logits_NTV.float()).log_prob(token_NT)
    assert logp_NT.dtype == torch.float32
    assert logp_NT.shape == (2, 3)
    torch.testing.assert_close(logp_NT, expected)
    assert entropy_NT.dtype == torch.float32


def test_entropy_is_in_nats():
    _, entropy_NT = token_scores(torch.zeros(1, 2, 8), torch.zeros(1, 2, dtype=torch.long), temperature=1.0)
    assert entropy_NT.tolist() == [[pytest.approx(math.log(8))] * 2]


@pytest.mark.parametrize("numbers", [1, 1 << 20])  # a token at a time, and all at once
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize(("of_logp", "of_entropy"), [(1.0, 0.0), (0.0, 1.0), (1.0, -0.3)])
def test_logps_entropies_and_their_gradients_are_those_of_a_plain_softmax(
    monkeypatch, numbers, temperature, of_logp, of_entropy
):
    monkeypatch.setattr(grpo, "_NUMBERS", numbers)
    generator = torch.Generator().manual_seed(0)
    logits_NTV = 3 * torch.randn(2, 3, 11, generator=generator)
    token_NT = torch.randint(11, (2, 3), generator=generator)
    weight_NT = torch.randn(2, 3, generator=generator)

    def objective(logp_NT, entropy_NT):
        total = 0.0
        if of_logp:
            total = total + of_logp * (weight_NT * logp_NT).sum()
        return total + of_entropy * (weight_NT.flip(0) * entropy_NT).sum() if of_entropy else total

    ours_NTV, plain_NTV = (logits_NTV.clone().requires_grad_() for _ in range(2))
    found = token_scores(ours_NTV, token_NT, temperature=temperature)
    distribution = torch.distributions.Categorical(logits=plain_NTV / temperature)
    expected = (distribution.log_prob(token_NT), distribution.entropy())
    torch.testing.assert_close(found, expected)
    objective(*found).backward()
    objective(*expected).backward()
    torch.testing.assert_close(ours_NTV.grad, plain_NTV.grad)


# --- the loss ---


def case():
    """Three sequences of six positions; written tokens and log-probabilities are fixed formulas."""
    step_NT = torch.arange(18, dtype=torch.float32).reshape(3, 6)
    logp_NT = (-1.5 + torch.sin(step_NT)).requires_grad_()
    old_NT = -1.5 + torch.sin(step_NT) + 0.4 * torch.cos(1.7 * step_NT)
    reference_NT = -1.5 + torch.sin(step_NT) - 0.3 * torch.cos(0.9 * step_NT)
    advantage_N = torch.tensor([1.0, -0.5, 0.25])
    mask_NT = torch.tensor([[1, 1, 0, 0, 1, 1], [1, 1, 1, 1, 1, 1], [1, 0, 0, 1, 0, 0]]).bool()
    return logp_NT, old_NT, reference_NT, advantage_N, mask_NT


def objective(logp_NT, old_NT, reference_NT, advantage_N, mask_NT, *, aggregation, kl_coef, divisor):
    share = {"aggregation": aggregation, "divisor": divisor}
    policy = policy_loss(logp_NT, old_NT, advantage_N, mask_NT, **CLIP, **share)
    kl_NT = k3_kl(masked_difference(reference_NT, logp_NT, mask_NT))
    return policy.loss + kl_coef * aggregate(kl_NT, mask_NT, **share), policy


# Loss, gradient at (0, 0) and norm of the gradient that `GRPOTrainer._compute_loss` of TRL 1.16.0 gives for `case()`
# with epsilon 0.2 / 0.28, loss types grpo, dapo and dr_grpo (completion length 8) and a tool mask equal to our mask.
TRL = [
    ("sequence", 0.0, -0.2033373862504959, -0.0558600053191185, 0.1802857518196106),
    ("sequence", 0.04, -0.20254893600940704, -0.0549960657954216, 0.18010635673999786),
    ("token", 0.0, -0.08075259625911713, -0.0558600053191185, 0.19017186760902405),
    ("token", 0.04, -0.07984637469053268, -0.0549960657954216, 0.1900244504213333),
    ("constant", 0.0, -0.04037629812955856, -0.02793000265955925, 0.09508593380451202),
    ("constant", 0.04, -0.03992318734526634, -0.0274980328977108, 0.09501222521066666),
]


@pytest.mark.parametrize(("aggregation", "kl_coef", "loss", "first_gradient", "gradient_norm"), TRL)
def test_loss_and_gradient_are_those_of_trl(aggregation, kl_coef, loss, first_gradient, gradient_norm):
    logp_NT, *rest = case()
    divisor = update_divisor(aggregation, sequences=3, tokens=12, constant_length=8)
    ours, policy = objective(logp_NT, *rest, aggregation=aggregation, kl_coef=kl_coef, divisor=divisor)
    ours.backward()
    assert ours.item() == pytest.approx(loss, abs=1e-7)
    assert logp_NT.grad[0, 0].item() == pytest.approx(first_gradient, abs=1e-7)
    assert logp_NT.grad.norm().item() == pytest.approx(gradient_norm, abs=1e-7)
    assert policy.clip_fraction == pytest.approx(2 / 12)  # TRL's clip_ratio/region_mean


def sampled(old_NT):
    """Log-probabilities of a sampler that disagrees with the learner's old ones."""
    return old_NT - 0.9 * torch.sin(2.3 * torch.arange(18, dtype=torch.float32).reshape(3, 6))


# The same of TRL for other clip bounds, and with its `importance_sampling_ratio`, exp(old - sampled) cut off at a cap.
# Bounds (1, inf) never clip.  Columns: aggregation, KL weight, bounds, cap, loss, norm of the gradient, clipped share.
MORE_OF_TRL = [
    ("sequence", 0.0, (1.0, math.inf), None, -0.20879501104354858, 0.18238472938537598, 0.0),
    ("sequence", 0.0, (0.2, 0.28), 2.0, -0.22488267719745636, 0.24206702411174774, 2 / 12),
    ("sequence", 0.04, (0.1, 0.5), 1.2, -0.18837736546993256, 0.1712057888507843, 3 / 12),
    ("token", 0.0, (1.0, math.inf), None, -0.08893901109695435, 0.19462302327156067, 0.0),
    ("token", 0.0, (0.2, 0.28), 2.0, -0.06078717112541199, 0.2634345591068268, 2 / 12),
    ("token", 0.04, (0.1, 0.5), 1.2, -0.06304236501455307, 0.1800447702407837, 3 / 12),
    ("constant", 0.0, (1.0, math.inf), None, -0.04446950554847717, 0.09731151163578033, 0.0),
    ("constant", 0.0, (0.2, 0.28), 2.0, -0.030393585562705994, 0.1317172795534134, 2 / 12),
    ("constant", 0.04, (0.1, 0.5), 1.2, -0.031521182507276535, 0.09002238512039185, 3 / 12),
]


@pytest.mark.parametrize(("aggregation", "kl_coef", "bounds", "cap", "loss", "gradient_norm", "clipped"), MORE_OF_TRL)
def test_clip_bounds_and_importance_weights_are_those_of_trl(
    aggregation, kl_coef, bounds, cap, loss, gradient_norm, clipped
):
    logp_NT, old_NT, reference_NT, advantage_N, mask_NT = case()
    share = {
        "aggregation": aggregation,
        "divisor": update_divisor(aggregation, sequences=3, tokens=12, constant_length=8),
    }
    weight_NT = importance_weights(masked_difference(old_NT, sampled(old_NT), mask_NT), cap=cap) if cap else None
    low, high = bounds
    policy = policy_loss(
        logp_NT, old_NT, advantage_N, mask_NT, clip_low=low, clip_high=high, weight_NT=weight_NT, **share
    )
    kl_NT = k3_kl(masked_difference(reference_NT, logp_NT, mask_NT))
    ours = policy.loss + kl_coef * aggregate(kl_NT, mask_NT, **share)
    ours.backward()
    assert ours.item() == pytest.approx(loss, abs=1e-6)
    assert logp_NT.grad.norm().item() == pytest.approx(gradient_norm, abs=1e-6)
    assert policy.clip_fraction == pytest.approx(clipped)


def test_importance_weights_are_cut_at_the_cap_and_carry_no_gradient():  # trap D11
    drift = torch.tensor([0.0, 0.0, 3.0, -1.0, 1e30], requires_grad=True)
    weight = importance_weights(drift, cap=2.0)
    assert weight.tolist() == pytest.approx([1.0, 1.0, 2.0, math.exp(-1.0), 2.0])
    assert not weight.requires_grad


@pytest.mark.parametrize(
    ("aggregation", "constant_length", "expected"),
    [("sequence", None, 0.0), ("token", None, 0.6), ("constant", 10, 0.3)],
)
@pytest.mark.parametrize("micro_batch", [1, 2])
def test_three_aggregations_are_three_objectives_and_no_micro_batch_changes_them(
    aggregation, constant_length, expected, micro_batch
):  # trap D7
    mask_NT, advantage_N = mask(2, 8), torch.tensor([1.0, -1.0])
    divisor = update_divisor(aggregation, sequences=2, tokens=10, constant_length=constant_length)
    logp_NT = torch.full((2, 8), -1.0)
    total = sum(
        policy_loss(
            logp_NT[rows],
            logp_NT[rows],
            advantage_N[rows],
            mask_NT[rows],
            **CLIP,
            aggregation=aggregation,
            divisor=divisor,
        ).loss
        for rows in torch.arange(2).split(micro_batch)
    )
    assert total.item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("noise", [math.nan, math.inf, -math.inf, 1.0, -40.0])
def test_nothing_stored_at_a_masked_position_matters(noise):  # trap C7
    def run(fill):
        logp_NT, old_NT, reference_NT, advantage_N, mask_NT = case()
        old_NT, reference_NT = (tensor.masked_fill(~mask_NT, fill) for tensor in (old_NT, reference_NT))
        loss, policy = objective(
            logp_NT, old_NT, reference_NT, advantage_N, mask_NT, aggregation="token", kl_coef=0.1, divisor=12.0
        )
        loss.backward()
        assert (logp_NT.grad[~mask_NT] == 0).all()
        return loss.item(), policy[1:], logp_NT.grad.tolist()

    assert run(noise) == run(0.0)


def test_a_masked_difference_is_zero_over_whatever_is_masked():  # trap C7
    nothing = torch.tensor([math.nan, math.inf, -math.inf, 1.0])
    mask_T = torch.tensor([False, False, False, True])
    assert masked_difference(nothing, -nothing, mask_T).tolist() == [0.0, 0.0, 0.0, 2.0]


def test_on_policy_the_gradient_is_that_of_minus_advantage_times_logp():  # trap D13
    logp_NT, _, _, advantage_N, mask_NT = case()
    policy = policy_loss(logp_NT, logp_NT.detach(), advantage_N, mask_NT, **CLIP, aggregation="token", divisor=12.0)
    policy.loss.backward()
    expected = -advantage_N[:, None] * mask_NT / 12.0
    torch.testing.assert_close(logp_NT.grad, expected)
    assert (policy.ratio_mean, policy.clip_fraction, policy.approx_kl) == (1.0, 0.0, 0.0)


def test_the_clip_cuts_the_gradient_on_its_own_side_only():
    log_ratio = torch.tensor([[0.5, 0.5, -0.5, -0.7]])
    logp_NT = (-2.0 + log_ratio).T.contiguous().requires_grad_()  # four sequences of one token
    policy = policy_loss(
        logp_NT,
        torch.full((4, 1), -2.0),
        torch.tensor([1.0, -1.0, 1.0, -1.0]),
        torch.ones(4, 1).bool(),
        **CLIP,
        aggregation="token",
        divisor=4.0,
    )
    policy.loss.backward()
    assert [gradient != 0 for gradient in logp_NT.grad.flatten().tolist()] == [False, True, True, False]
    assert policy.clip_fraction == 0.5
    assert policy.ratio_mean == pytest.approx((2 * math.exp(0.5) + math.exp(-0.5) + math.exp(-0.7)) / 4)
    assert policy.approx_kl == pytest.approx(policy.ratio_mean - 1.0 + 0.2 / 4)
    assert policy.loss.item() == pytest.approx(-(1.28 - math.exp(0.5) + math.exp(-0.5) - 0.8) / 4)


@pytest.mark.parametrize("gap", [200.0, -200.0, 1e30])
@pytest.mark.parametrize("advantage", [1.0, 0.0, -1.0])
def test_a_huge_ratio_stays_finite_in_value_and_gradient(gap, advantage):
    logp_NT = torch.tensor([[gap]]).requires_grad_()
    policy = policy_loss(
        logp_NT,
        torch.zeros(1, 1),
        torch.tensor([advantage]),
        torch.ones(1, 1).bool(),
        **CLIP,
        aggregation="token",
        divisor=1.0,
    )
    policy.loss.backward()
    assert math.isfinite(policy.loss.item())
    assert torch.isfinite(logp_NT.grad).all()


@pytest.mark.parametrize(("difference", "expected"), [(0.0, 0.0), (1.0, 0.71828), (-1.0, 0.36788), (-200.0, 199.0)])
def test_k3_has_its_known_values(difference, expected):  # trap D8
    assert k3_kl(torch.tensor(difference)).item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("difference", [200.0, -200.0, 1e30])
def test_k3_is_finite_with_a_finite_gradient(difference):  # trap D8
    value = torch.tensor(difference, requires_grad=True)
    result = k3_kl(value)
    result.backward()
    assert torch.isfinite(result)
    assert torch.isfinite(value.grad)


def test_k3_estimates_the_divergence_it_is_named_after():
    generator = torch.Generator().manual_seed(0)
    policy, reference = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.4, 0.4, 0.2])
    drawn = torch.multinomial(policy, 100_000, replacement=True, generator=generator)
    estimate = k3_kl((reference.log() - policy.log())[drawn])
    truth = (policy * (policy / reference).log()).sum()
    assert abs(estimate.mean() - truth) < 4 * estimate.std() / math.sqrt(len(drawn))


def test_bad_divisors_masks_and_modes_are_refused():
    value_NT, mask_NT = torch.zeros(1, 2), torch.ones(1, 2).bool()
    with pytest.raises(InvalidInput, match="divisor must be positive, got 0"):
        aggregate(value_NT, mask_NT, aggregation="token", divisor=0)
    with pytest.raises(InvalidInput, match=r"aggregation must be one of .*'mean'"):
        aggregate(value_NT, mask_NT, aggregation="mean", divisor=1.0)
    with pytest.raises(InvalidInput, match="constant_length must be at least 1"):
        update_divisor("constant", sequences=1, tokens=1, constant_length=None)
    with pytest.raises(InvalidInput, match="True somewhere"):
        masked_mean(value_NT, ~mask_NT)
