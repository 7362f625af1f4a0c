import contextlib
import copy
import dataclasses
import math

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import Gemma2Config, Gemma2ForCausalLM, LlamaConfig, LlamaForCausalLM

from agents.grpo import group_advantages
from agents.learner import Learner, LearnerSettings, Sample, comparable
from agents.scoring import Root, Row, Scorer, collate, micro_batches, without_dropout
from agents.tokens import TokenSequence
from sesa_env.errors import InvalidInput, PolicyMismatch, SettingsError

CPU = torch.device("cpu")
SHAPE = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64}
PLAIN = LearnerSettings(lr=1e-2, kl_coef=0.0)


@pytest.fixture(autouse=True)
def one_thread():
    """Threads only wait for each other on models this small; on a busy machine they wait long."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def tiny_model(seed=0, **extra):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LlamaForCausalLM(LlamaConfig(**SHAPE, initializer_range=0.2, **extra))


def learner_of(model, settings=PLAIN, **contexts):
    return Learner(model, model.parameters(), settings, **contexts)


def trajectory(*parts, logp=-1.0, truncated=False, episode="e"):
    sequence = TokenSequence()
    for producer, tokens in parts:
        if producer == "A":
            sequence.append_written(tokens, [logp] * len(tokens))
        else:
            sequence.append_context(tokens)
    return sequence.freeze(episode=episode, truncated=truncated)


def as_sampled(learner, trajectories):
    """Return the trajectories with the log-probabilities that this learner's weights give them now."""
    scores = learner.score(trajectories)
    return [dataclasses.replace(one, logp_T=score) for one, score in zip(trajectories, scores, strict=True)]


def mixed_samples(learner, **changes):
    """Two groups of two attempts, of unequal lengths, with observations in between."""
    attempts = [
        trajectory(("P", [1, 2, 3]), ("A", [4, 5]), ("P", [6, 7]), ("A", [8, 9, 10])),
        trajectory(("P", [1, 2, 3]), ("A", [11])),
        trajectory(("P", [20, 21]), ("A", [22, 23, 24, 25, 26])),
        trajectory(("P", [20, 21]), ("A", [27, 28]), ("P", [29] * 9), ("A", [30])),
    ]
    rewards = changes.get("rewards", (1.0, 0.0, 0.0, 1.0))
    return [
        Sample(one, reward, group)
        for one, reward, group in zip(as_sampled(learner, attempts), rewards, ("q1", "q1", "q2", "q2"), strict=True)
    ]


def gradients(learner, samples):
    """Run one update and return its statistics and the gradient of its first step, before clipping."""
    seen = []
    learner.settings = dataclasses.replace(learner.settings, max_grad_norm=1e9)
    hook = learner.optimizer.register_step_pre_hook(
        lambda *_: seen.append(torch.cat([p.grad.flatten() for p in learner._parameters]))
    )
    stats = learner.update(samples)
    hook.remove()
    return stats, seen[0]


def weights(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


@contextlib.contextmanager
def holding(model, others):
    """Let the model hold other weights for a while."""
    own = weights(model)
    model.load_state_dict(others)
    yield
    model.load_state_dict(own)


def same(before, after):
    return all(torch.equal(before[name], after[name]) for name in before)


# --- learning ---


@pytest.mark.parametrize("kl_coef", [0.0, 0.01])
def test_a_policy_learns_to_write_the_token_that_is_rewarded(kl_coef):
    model = tiny_model()
    start = weights(model)
    learner = learner_of(
        model, LearnerSettings(lr=1e-2, kl_coef=kl_coef, max_logp_gap=1e-3), reference=lambda: holding(model, start)
    )
    generator = torch.Generator().manual_seed(0)
    prompt = [1, 2, 3]
    for _ in range(30):
        with torch.no_grad():
            logp_V = model(input_ids=torch.tensor([prompt])).logits[0, -1].log_softmax(-1)
        drawn = torch.multinomial(logp_V.exp(), 16, replacement=True, generator=generator).tolist()
        attempts = [trajectory(("P", prompt), ("A", [token]), logp=logp_V[token].item()) for token in drawn]
        learner.update([Sample(one, float(one.token_T[-1] % 4 == 0), "q") for one in attempts])
    with torch.no_grad():
        probability_V = model(input_ids=torch.tensor([prompt])).logits[0, -1].softmax(-1)
    assert probability_V[::4].sum() > 0.9
    assert learner.updates == 30


def test_one_epoch_is_on_policy_and_its_gradient_is_that_of_advantage_times_logp():  # traps D12, D13
    model = tiny_model()
    learner = learner_of(model)
    samples = mixed_samples(learner)
    reference_model = copy.deepcopy(model)
    stats, ours = gradients(learner, samples)

    advantage_N = group_advantages(
        torch.tensor([s.reward for s in samples]), [s.group for s in samples], scale="group", baseline="group"
    ).advantage_N
    loss = torch.zeros(())
    for sample, advantage in zip(samples, advantage_N, strict=True):  # one sequence at a time: no padding, no batch
        ids = torch.tensor([sample.trajectory.token_T])
        logp_TV = reference_model(input_ids=ids).logits[0].log_softmax(-1)
        for position, written in enumerate(sample.trajectory.written_T):
            if written:
                loss = loss - advantage * logp_TV[position - 1, ids[0, position]] / 14
    loss.backward()
    expected = torch.cat([p.grad.flatten() for p in reference_model.parameters()])
    torch.testing.assert_close(ours, expected, atol=1e-6, rtol=1e-4)
    assert abs(stats.ratio_mean - 1.0) < 1e-3
    assert stats.clip_fraction == 0.0
    assert stats.logp_gap_max < 1e-4
    assert (stats.tokens, stats.sequences, stats.groups) == (14, 4, 2)
    assert stats.grad_norm == pytest.approx(ours.norm().item(), rel=1e-4)
    assert stats.updated


def test_the_ratio_leaves_one_in_the_second_epoch():  # trap D13
    once, twice = tiny_model(), tiny_model()
    first = learner_of(once, dataclasses.replace(PLAIN, lr=0.05))
    second = learner_of(twice, dataclasses.replace(PLAIN, lr=0.05, epochs=2))
    stats_once, stats_twice = first.update(mixed_samples(first)), second.update(mixed_samples(second))
    assert abs(stats_once.ratio_mean - 1.0) < 1e-3
    assert abs(stats_twice.ratio_mean - 1.0) > 0.01
    assert stats_twice.clip_fraction > 0
    assert stats_twice.approx_kl > stats_once.approx_kl >= 0.0
    assert stats_twice.logp_gap_max < 1e-4  # measured before the first step
    assert not same(weights(once), weights(twice))


# --- batches, padding and masks ---


@pytest.mark.parametrize("aggregation", ["sequence", "token", "constant"])
def test_micro_batches_do_not_change_the_gradient(aggregation):  # trap D7
    results = []
    for micro_batch_tokens in (1, 20, 10_000):
        model = tiny_model()
        settings = LearnerSettings(
            aggregation=aggregation,
            constant_length=16,
            micro_batch_tokens=micro_batch_tokens,
            kl_coef=0.1,
            entropy_coef=0.01,
            scale="none",
        )
        learner = learner_of(model, settings, reference=lambda: _scaled(model, 0.9))  # noqa: B023
        results.append(gradients(learner, mixed_samples(learner)))
    (one, one_gradient), *others = results
    for stats, gradient in others:
        torch.testing.assert_close(gradient, one_gradient, atol=1e-6, rtol=1e-4)
        assert stats.as_dict() == pytest.approx(one.as_dict(), abs=1e-5)
    assert one.kl > 0
    assert one.loss != one.policy_loss


@contextlib.contextmanager
def _scaled(model, factor):
    """A reference that differs from the policy: the output layer, scaled."""
    head = model.get_output_embeddings().weight
    kept = head.data.clone()
    head.data.mul_(factor)
    yield
    head.data.copy_(kept)


def test_short_sequences_share_a_micro_batch_and_long_ones_are_kept_whole():
    lengths = [3, 50, 4, 9, 3, 10]
    rows = [Row(i, trajectory(("P", [1]), ("A", [2] * (length - 1)))) for i, length in enumerate(lengths)]
    parts = micro_batches(rows, tokens=20)
    assert [[len(row.trajectory) for row in part] for part in parts] == [[50], [10, 9], [4, 3, 3]]


def test_padding_is_found_by_length_and_not_by_id():  # trap C8
    ends = trajectory(("P", [5]), ("A", [6, 0]))  # 0 is also what fills the padding
    longer = trajectory(("P", [5]), ("A", [6, 7, 8, 9]))
    batch = collate([Row(0, longer), Row(1, ends)], device=CPU)
    assert batch.attention_NT.tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]
    assert batch.mask_NT.tolist() == [[False, True, True, True, True], [False, True, True, False, False]]
    assert batch.position_NT.tolist() == [[0, 1, 2, 3, 4]] * 2
    assert batch.token_NT.shape == batch.old_logp_NT.shape == (2, 5)
    assert batch.advantage_N.shape == (2,)


def test_a_neighbour_in_the_batch_does_not_change_a_score():  # trap C9
    learner = learner_of(tiny_model())
    short = trajectory(("P", [1, 2]), ("A", [3, 4, 5]))
    long = trajectory(("P", list(range(1, 43))), ("A", [3, 4, 5]))
    alone, together = learner.score([short])[0], learner.score([short, long])[0]
    assert alone == pytest.approx(together, abs=1e-4)
    assert [len(score) for score in learner.score([short, long])] == [5, 45]


def test_scores_come_in_the_order_of_the_trajectories_and_are_the_models_own():
    model = tiny_model()
    learner = learner_of(model, dataclasses.replace(PLAIN, temperature=0.7, micro_batch_tokens=12))
    attempts = [sample.trajectory for sample in mixed_samples(learner)]
    for one, score in zip(attempts, learner.score(attempts), strict=True):
        with torch.no_grad():
            logp_TV = (model(input_ids=torch.tensor([one.token_T])).logits[0] / 0.7).log_softmax(-1)
        own = [
            logp_TV[i - 1, token].item() if written else 0.0
            for i, (token, written) in enumerate(zip(one.token_T, one.written_T, strict=True))
        ]
        assert score == pytest.approx(own, abs=1e-5)


def test_observations_are_read_but_never_learned_as_labels():  # trap C5
    def gradient_of_output_rows(observation):
        model = tiny_model(tie_word_embeddings=False)
        learner = learner_of(model)
        attempts = [
            trajectory(("P", [1]), ("A", [4, 5]), ("P", observation)),  # after it nothing was written
            trajectory(("P", [1]), ("A", [6]), ("P", observation)),
        ]
        samples = [Sample(one, float(i), "q") for i, one in enumerate(as_sampled(learner, attempts))]
        stats, gradient = gradients(learner, samples)
        return stats.as_dict(), gradient

    one, other = gradient_of_output_rows([7, 8, 9]), gradient_of_output_rows([40, 41, 42])
    assert one[0] == pytest.approx(other[0], abs=1e-6)
    torch.testing.assert_close(one[1], other[1], atol=1e-7, rtol=1e-5)


def test_truncated_attempts_can_be_left_out_of_everything_but_the_baseline():  # trap C10
    def run(last_tokens, **changes):
        learner = learner_of(tiny_model(), dataclasses.replace(PLAIN, **changes))
        attempts = [
            trajectory(("P", [1]), ("A", [2, 3])),
            trajectory(("P", [1]), ("A", [4])),
            trajectory(("P", [1]), ("A", [5, 6])),
            trajectory(("P", [1]), ("A", last_tokens), truncated=True),
        ]
        rewards = (1.0, 0.0, 0.0, 0.0)
        samples = zip(as_sampled(learner, attempts), rewards, strict=True)
        return gradients(learner, [Sample(one, reward, "q") for one, reward in samples])

    (stats, gradient), (other, other_gradient) = run([7], mask_truncated=True), run([8] * 30, mask_truncated=True)
    assert (stats.tokens, stats.sequences) == (5, 3)
    torch.testing.assert_close(gradient, other_gradient)
    assert stats.entropy == pytest.approx(other.entropy)
    kept, kept_gradient = run([7])
    assert (kept.tokens, kept.sequences) == (6, 4)
    assert not torch.allclose(kept_gradient, gradient)


def test_dropout_is_off_during_an_update_and_back_on_after_it():
    model = tiny_model(attention_dropout=0.5)
    model.train()
    model.lm_head.eval()
    learner = learner_of(model)
    stats = learner.update(mixed_samples(learner))
    assert stats.logp_gap_max < 1e-4
    assert model.training
    assert model.model.layers[0].self_attn.training
    assert not model.lm_head.training
    with pytest.raises(KeyError), without_dropout(model):
        raise KeyError
    assert model.training


def test_a_model_that_caps_its_logits_is_scored_by_its_own_logits():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = Gemma2Config(
            **SHAPE, num_key_value_heads=2, head_dim=8, final_logit_softcapping=2.0, initializer_range=1.0
        )
        model = Gemma2ForCausalLM(config).eval()
    one = trajectory(("P", [1, 2]), ("A", [3, 4]))
    logp_NT, _ = Scorer(model, temperature=1.0, device=CPU).logps(collate([Row(0, one)], device=CPU), Root())
    with torch.no_grad():
        logp_TV = model(input_ids=torch.tensor([one.token_T])).logits[0].log_softmax(-1)
    assert logp_NT[0, 2:].tolist() == pytest.approx([logp_TV[1, 3].item(), logp_TV[2, 4].item()], abs=1e-5)


# --- what does not move the weights ---


def test_flat_groups_without_kl_skip_the_update_and_are_counted():  # trap D2
    model = tiny_model()
    learner = learner_of(model, dataclasses.replace(PLAIN, weight_decay=0.1))
    learner.update(mixed_samples(learner))  # momentum from here must not move anything later
    before = weights(model)
    stats = learner.update(mixed_samples(learner, rewards=(1.0, 1.0, 0.0, 0.0)))
    assert same(before, weights(model))
    assert stats.skipped_flat
    assert not stats.updated
    assert stats.zero_variance_share == 1.0
    assert (learner.updates, learner.skipped_flat) == (2, 1)
    assert stats.loss is None
    assert "loss" not in stats.as_dict()


def test_kl_pulls_on_flat_groups_unless_they_are_masked():  # trap D3
    flat, half = (1.0, 1.0, 0.0, 0.0), (1.0, 1.0, 0.0, 1.0)

    def run(rewards, *, masked):
        model = tiny_model()
        settings = LearnerSettings(kl_coef=0.1, scale="batch", mask_zero_advantage=masked)
        learner = learner_of(model, settings, reference=lambda: _scaled(model, 0.9))
        return learner.update(mixed_samples(learner, rewards=rewards))

    assert run(flat, masked=False).updated
    assert run(flat, masked=True).skipped_flat
    assert (run(half, masked=True).sequences, run(half, masked=True).tokens) == (2, 8)
    assert run(half, masked=False).sequences == 4


def test_the_kl_term_pulls_towards_the_reference():
    model = tiny_model()
    settings = LearnerSettings(lr=1e-3, kl_coef=1.0)
    with _scaled(model, 0.5):
        target = weights(model)
    learner = learner_of(model, settings, reference=lambda: holding(model, target))
    flat = mixed_samples(learner, rewards=(1.0, 1.0, 0.0, 0.0))
    divergences = [learner.update(flat).kl for _ in range(5)]
    assert divergences[-1] < 0.5 * divergences[0]


def test_the_entropy_bonus_raises_entropy():
    learner = learner_of(tiny_model(), dataclasses.replace(PLAIN, lr=1e-3, entropy_coef=1.0))
    flat = mixed_samples(learner, rewards=(1.0, 1.0, 0.0, 0.0))
    first, *_, last = [learner.update(flat) for _ in range(5)]
    assert last.entropy > first.entropy + 0.01
    assert first.loss == pytest.approx(first.policy_loss - first.entropy, abs=1e-5)


def test_sequences_that_nothing_pulls_on_still_count_in_the_denominator():
    model = tiny_model()
    learner = learner_of(model)
    stats, gradient = gradients(learner, mixed_samples(learner, rewards=(1.0, 0.0, 1.0, 1.0)))
    assert (stats.tokens, stats.sequences) == (14, 4)
    alone = learner_of(tiny_model())
    _, pair_gradient = gradients(alone, mixed_samples(alone, rewards=(1.0, 0.0, 1.0, 1.0))[:2])
    torch.testing.assert_close(gradient * 14, pair_gradient * 6, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("broken", ["loss", "gradient"])
def test_what_is_not_finite_never_reaches_the_weights(broken):
    model = tiny_model()
    learner = learner_of(model)
    samples = mixed_samples(learner)
    handles = []
    if broken == "loss":
        handles.append(model.lm_head.register_forward_hook(lambda *arguments: arguments[-1] * math.nan))
    else:
        handles.append(model.model.norm.weight.register_hook(lambda gradient: gradient * math.inf))
    before = weights(model)
    stats = learner.update(samples)
    assert same(before, weights(model))
    assert stats.skipped_nonfinite
    assert not stats.updated
    assert learner.skipped_nonfinite == 1
    assert not learner.optimizer.state
    for handle in handles:
        handle.remove()
    assert learner.update(samples).updated


def test_a_gap_between_sampler_and_learner_is_measured_and_can_stop_the_update():  # traps D11, D12
    model = tiny_model()
    learner = learner_of(model)
    samples = mixed_samples(learner)
    first = samples[0].trajectory
    stale = dataclasses.replace(first, logp_T=(*first.logp_T[:-1], first.logp_T[-1] - 3.0))
    samples[0] = dataclasses.replace(samples[0], trajectory=stale)
    before = weights(model)
    strict = learner_of(model, dataclasses.replace(PLAIN, max_logp_gap=0.5))
    with pytest.raises(
        PolicyMismatch, match=r"by up to 3 \(mean 0.214\) over 14 tokens, max_logp_gap is 0.5.*\(4, 14\)"
    ):
        strict.update(samples)
    assert same(before, weights(model))
    assert all(parameter.grad is None for parameter in model.parameters())
    stats = learner.update(samples)
    assert stats.logp_gap_max == pytest.approx(3.0, abs=1e-3)
    assert stats.logp_gap_mean == pytest.approx(3.0 / 14, abs=1e-3)


def test_old_logps_of_both_roles_are_those_of_the_sampler():  # trap E13
    model = tiny_model()
    challenger, solver = learner_of(model, dataclasses.replace(PLAIN, lr=0.05)), learner_of(model)
    samples = mixed_samples(solver)
    at_sampling = [sample.trajectory.logp_T for sample in samples]
    challenger.update([Sample(s.trajectory, s.reward, s.group) for s in samples[::-1]])
    stats = solver.update(samples)
    assert abs(stats.ratio_mean - 1.0) > 0.01
    assert stats.logp_gap_max > 0.01
    assert [sample.trajectory.logp_T for sample in samples] == at_sampling


def test_the_gap_can_be_measured_before_another_learner_moves_the_weights():  # trap D11
    model = tiny_model()
    strict = dataclasses.replace(PLAIN, max_logp_gap=1e-3)
    challenger, solver = learner_of(model, dataclasses.replace(PLAIN, lr=0.05)), learner_of(model, strict)
    samples = mixed_samples(solver)
    gap = solver.gap(samples)
    assert gap.largest < 1e-4
    assert gap.tokens == 14
    challenger.update(samples)
    moved = weights(model)
    with pytest.raises(PolicyMismatch):
        solver.update(samples)  # it measures what the challenger's update did
    assert same(moved, weights(model))
    stats = solver.update(samples, gap=gap)
    assert stats.updated
    assert stats.logp_gap_max == gap.largest
    flat = mixed_samples(solver, rewards=(1.0, 1.0, 0.0, 0.0))
    assert solver.gap(flat) is None


# --- which algorithm: settings only ---


def test_reinforce_moves_along_reward_times_logp():
    model, samples = tiny_model(), None
    settings = dataclasses.replace(PLAIN, baseline="none", scale="none", clip_low=1.0, clip_high=None)
    learner = learner_of(model, settings)
    samples = mixed_samples(learner, rewards=(1.0, -0.5, 0.0, 1.0))
    expected_model = copy.deepcopy(model)
    loss = torch.zeros(())
    for sample in samples:
        ids = torch.tensor([sample.trajectory.token_T])
        logp_TV = expected_model(input_ids=ids).logits[0].log_softmax(-1)
        for position, written in enumerate(sample.trajectory.written_T):
            if written:
                loss = loss - sample.reward * logp_TV[position - 1, ids[0, position]] / 14
    loss.backward()
    stats, ours = gradients(learner, samples)
    expected = torch.cat([p.grad.flatten() for p in expected_model.parameters()])
    torch.testing.assert_close(ours, expected, atol=1e-6, rtol=1e-4)
    assert stats.zero_variance_share == 0.25  # one reward of four is zero


def test_a_step_of_imitation_is_one_of_supervised_learning():
    model = tiny_model()
    learner = learner_of(model, dataclasses.replace(PLAIN, lr=1e-2))
    attempts = [sample.trajectory for sample in mixed_samples(learner)]
    unscored = [  # a teacher's tokens have no log-probabilities; whatever is recorded plays no part
        dataclasses.replace(one, logp_T=tuple(-9.0 * written for written in one.written_T)) for one in attempts
    ]
    expected_model = copy.deepcopy(model)
    loss = torch.zeros(())
    for one in attempts:
        ids = torch.tensor([one.token_T])
        logits_TV = expected_model(input_ids=ids).logits[0, :-1]
        labels_T = torch.where(torch.tensor(one.written_T), ids[0], -100)[1:]
        loss = loss + torch.nn.functional.cross_entropy(logits_TV, labels_T, reduction="sum") / 14
    loss.backward()
    seen = []
    learner.optimizer.register_step_pre_hook(
        lambda *_: seen.append(torch.cat([p.grad.flatten() for p in learner._parameters]))
    )
    learner.settings = dataclasses.replace(learner.settings, max_grad_norm=1e9)
    stats = learner.imitate(unscored)
    torch.testing.assert_close(
        seen[0], torch.cat([p.grad.flatten() for p in expected_model.parameters()]), atol=1e-6, rtol=1e-4
    )
    assert stats.nll == pytest.approx(loss.item(), abs=1e-5)
    assert stats.logp_gap_max is None
    for _ in range(30):
        last = learner.imitate(unscored)
    assert last.nll < 0.2 * stats.nll
    with pytest.raises(InvalidInput, match="at least one to imitate"):
        learner.imitate([])


def test_capped_importance_weights_undo_a_known_drift_of_the_sampler():  # trap D11
    """Tokens whose recorded log-probability is log 1.5 too low count 1.5 times, those log 9 too low only twice."""
    model = tiny_model()
    learner = learner_of(model, dataclasses.replace(PLAIN, importance_cap=2.0, scale="none"))
    attempts = as_sampled(learner, [trajectory(("P", [1, 2]), ("A", [3])), trajectory(("P", [1, 2]), ("A", [4]))])
    drift = (math.log(1.5), math.log(9.0))
    stale = [
        dataclasses.replace(one, logp_T=(0.0, 0.0, one.logp_T[-1] - by))
        for one, by in zip(attempts, drift, strict=True)
    ]
    expected_model = copy.deepcopy(model)
    logp_V = expected_model(input_ids=torch.tensor([[1, 2]])).logits[0, -1].log_softmax(-1)
    (-(1.5 * 0.5 * logp_V[3] - 2.0 * 0.5 * logp_V[4]) / 2).backward()
    stats, ours = gradients(learner, [Sample(one, reward, "q") for one, reward in zip(stale, (1.0, 0.0), strict=True)])
    expected = torch.cat([p.grad.flatten() for p in expected_model.parameters()])
    torch.testing.assert_close(ours, expected, atol=1e-6, rtol=1e-4)
    assert stats.importance_mean == pytest.approx(1.75, abs=1e-4)
    assert stats.ratio_mean == pytest.approx(1.0, abs=1e-5)  # of the learner against itself, before it moved


def test_the_step_size_follows_its_schedule():
    settings = dataclasses.replace(PLAIN, lr=0.1, schedule="linear", warmup_updates=2, total_updates=4)
    learner = learner_of(tiny_model(), settings)
    taken = [learner.update(mixed_samples(learner)).lr for _ in range(5)]
    assert taken == pytest.approx([0.05, 0.1, 0.1, 0.05, 0.05])


# --- adapters ---


@contextlib.contextmanager
def adapter(model, name):
    previous = model.active_adapter
    model.set_adapter(name)
    yield
    model.set_adapter(previous)


def two_adapters():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = LoraConfig(r=4, target_modules=["q_proj", "v_proj", "lm_head"], lora_dropout=0.1)
        model = get_peft_model(tiny_model(), config, adapter_name="challenger")
        model.add_adapter("solver", config)
    return model


def adapter_learner(model, name, **changes):
    parameters = [value for key, value in model.named_parameters() if f".{name}." in key]
    settings = LearnerSettings(lr=1e-2, **changes)
    return Learner(model, parameters, settings, activate=lambda: adapter(model, name), reference=model.disable_adapter)


def test_updating_one_adapter_leaves_the_other_and_the_base_bit_for_bit():
    model = two_adapters()
    learner = adapter_learner(model, "solver", epochs=2)
    before = weights(model)
    stats = learner.update(mixed_samples(learner))
    after = weights(model)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert stats.updated
    assert moved
    assert all(".solver." in name for name in moved)
    assert model.active_adapter == "challenger"
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_reference_is_the_model_with_its_adapter_off():
    model = two_adapters()
    learner = adapter_learner(model, "solver")
    stats = learner.update(mixed_samples(learner))
    assert stats.kl == pytest.approx(0.0, abs=1e-6)  # a fresh adapter changes nothing

    samples = mixed_samples(learner)
    with model.disable_adapter():
        base = Learner(model, learner._parameters, PLAIN, activate=model.disable_adapter).score(
            [sample.trajectory for sample in samples]
        )
    gaps = [
        theirs - ours
        for sample, reference in zip(samples, base, strict=True)
        for ours, theirs, written in zip(sample.trajectory.logp_T, reference, sample.trajectory.written_T, strict=True)
        if written
    ]
    expected = sum(math.exp(gap) - gap - 1.0 for gap in gaps) / len(gaps)
    assert learner.update(samples).kl == pytest.approx(expected, rel=1e-3)
    assert expected > 1e-4


def test_a_learner_whose_weights_are_not_in_use_says_so():
    model = two_adapters()
    parameters = [value for key, value in model.named_parameters() if ".solver." in key]
    learner = Learner(model, parameters, PLAIN, activate=lambda: adapter(model, "challenger"))
    with pytest.raises(InvalidInput, match="activate must select"):
        learner.update(mixed_samples(learner))


# --- settings, state, input ---


def test_defaults_are_those_of_reinforcement_learning():  # traps D14, D15
    settings = LearnerSettings()
    assert (settings.lr, settings.entropy_coef, settings.kl_coef, settings.epochs) == (1e-6, 0.0, 0.01, 1)
    learner = learner_of(tiny_model(), dataclasses.replace(PLAIN, lr=3e-7))
    assert learner.optimizer.param_groups[0]["lr"] == 3e-7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lr": -1.0}, "lr must be finite and not negative, got -1.0"),
        ({"lr": math.nan}, "lr must be finite and not negative, got nan"),
        ({"clip_low": 1.1}, r"clip_low must lie in \(0, 1\]"),
        ({"clip_high": -0.1}, "clip_high must be positive"),
        ({"kl_coef": -0.1}, "kl_coef must be finite and not negative"),
        ({"temperature": 0.0}, "temperature must be at least 0.01, got 0.0"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"aggregation": "mean"}, "aggregation must be one of .*got 'mean'"),
        ({"scale": "std"}, "scale must be one of"),
        ({"baseline": "mean"}, "baseline must be one of"),
        ({"baseline": "none"}, "scale must be 'none' with baseline 'none', got 'group'"),
        ({"schedule": "step"}, "schedule must be one of"),
        ({"warmup_updates": -1}, "warmup_updates must be at least 0"),
        ({"importance_cap": 0.0}, "importance_cap must be positive or None"),
        ({"max_logp_gap": 0.0}, "max_logp_gap must be positive or None"),
        ({"aggregation": "constant"}, "constant_length must be at least 1"),
    ],
)
def test_settings_out_of_range_are_refused(change, message):
    with pytest.raises(SettingsError, match=message):
        LearnerSettings(**change)


def test_a_kl_term_needs_a_reference_and_parameters_need_room_for_small_steps():
    model = tiny_model()
    with pytest.raises(SettingsError, match=r"kl_coef must be 0 without a reference, got 0\.01"):
        learner_of(model, LearnerSettings())
    with pytest.raises(InvalidInput, match=r"float32 to be trained, got torch\.bfloat16"):
        learner_of(tiny_model().bfloat16())
    with pytest.raises(SettingsError, match="lr must be positive to learn"):
        learner_of(model, dataclasses.replace(PLAIN, lr=0.0))
    with pytest.raises(InvalidInput, match="at least one tensor"):
        Learner(model, [], PLAIN)


@pytest.mark.parametrize(
    ("parts", "message"),
    [([("P", [1, 2])], "must hold a written token, got none in 'e7'"), ([("A", [1])], "must start with a prompt")],
)
def test_a_trajectory_nothing_can_be_learned_from_is_refused(parts, message):
    learner = learner_of(tiny_model())
    samples = [Sample(trajectory(*parts, episode="e7"), reward, "q") for reward in (0.0, 1.0)]
    with pytest.raises(InvalidInput, match=message):
        learner.update(samples)


def test_a_lost_attempt_shrinks_or_voids_its_group_and_no_other():  # traps E14, F5, D19
    learner = learner_of(tiny_model())
    q1_first, q1_second, q2_first, _ = mixed_samples(learner)
    with pytest.raises(InvalidInput, match=r"at least 2 .* 'q2'"):
        learner.update([q1_first, q1_second, q2_first])
    assert comparable([q2_first, q1_first, q1_second]) == [q1_first, q1_second]
    assert comparable([]) == []


def test_an_interrupted_run_goes_on_as_if_it_had_not_been():
    straight = learner_of(tiny_model())
    for _ in range(3):
        straight.update(mixed_samples(straight))

    first = learner_of(tiny_model())
    for _ in range(2):
        first.update(mixed_samples(first))
    model = tiny_model(seed=1)
    model.load_state_dict(first._model.state_dict())
    resumed = learner_of(model)
    resumed.load_state_dict(copy.deepcopy(first.state_dict()))
    resumed.update(mixed_samples(resumed))
    assert same(weights(straight._model), weights(model))
    assert resumed.updates == straight.updates == 3


def test_a_loaded_state_does_not_overrule_the_settings():  # trap D15
    saved = learner_of(tiny_model()).state_dict()
    learner = learner_of(tiny_model(), dataclasses.replace(PLAIN, lr=3e-7))
    learner.load_state_dict(saved)
    learner.update(mixed_samples(learner))
    assert learner.optimizer.param_groups[0]["lr"] == 3e-7
    with pytest.raises(InvalidInput, match="must have the keys"):
        learner.load_state_dict({"optimizer": {}})


def test_learners_that_share_an_optimiser_keep_their_own_step_sizes():
    model = tiny_model()
    solver = learner_of(model, dataclasses.replace(PLAIN, lr=1e-3))
    challenger = learner_of(model, dataclasses.replace(PLAIN, lr=1e-4), optimizer=solver.optimizer)
    used = []
    solver.optimizer.register_step_pre_hook(lambda optimizer, *_: used.append(optimizer.param_groups[0]["lr"]))
    for learner in (challenger, solver, challenger):
        learner.update(mixed_samples(learner))
    assert used == [1e-4, 1e-3, 1e-4]
    other = tiny_model()
    with pytest.raises(InvalidInput, match="exactly the tensors in parameters"):
        learner_of(other, optimizer=solver.optimizer)


def test_statistics_can_be_logged_as_numbers():
    learner = learner_of(tiny_model())
    numbers = learner.update(mixed_samples(learner)).as_dict()
    assert all(isinstance(value, float) and math.isfinite(value) for value in numbers.values())
    assert numbers["updated"] == 1.0
    assert numbers["entropy"] > 0
    assert "kl" not in numbers  # not measured, so not zero either
