"""Acts by a policy file of episafe with nothing but Python (docs/policies.md): `draw` once an episode, then ask."""

from math import exp, log, sqrt


def draw(policy, uniform):  # uniform: a random number in [0, 1); the component that acts for the whole episode
    weights, components = policy.get("weights", [1.0]), policy.get("components", [policy])
    return next((c for i, c in enumerate(components) if sum(weights[: i + 1]) > uniform), components[-1])


def probabilities(policy, h, state, phi=None, reward=None, utility=None):  # phi, …: a row for each action, as the task
    if policy["kind"] == "steps":  # whatever the state
        return policy["steps"][h]
    if policy["kind"] == "rows" and not isinstance(state, str):
        raise TypeError(f"rows are by the text of a state, not by {state!r}: see docs/policies.md")
    if policy["kind"] == "table" or (policy["kind"] == "rows" and state in policy["rows"][h]):
        return policy[policy["kind"]][h][state]
    c, left, A, logits = policy["scales"], policy["horizon"] - 1 - h, policy["num_actions"], []
    for a in range(A):
        beta, bonus, (r, dagger, u), means = policy.get("beta"), policy.get("bonus"), (0, 0, 0), (0, 0)
        if policy["kind"] == "softmax":
            dots = lambda rows, a=a: [sum(w * x for w, x in zip(row, phi[a], strict=True)) for row in rows]  # noqa: E731
            beta = sqrt(max(dots([dots(policy["gram_inv"][h])])[0], 0))
            bonus, (r, dagger, u) = beta * (1 + c["curve"] * beta), dots(policy["weights"][h])
            means = dots(policy["theta"][h]) if policy["learned"] else means
        seen = [min(max(mean + scale * beta, 0), 1) for mean, scale in zip(means, policy["signal_scales"], strict=True)]
        Q_r = seen[0] if "reward" in policy["learned"] else reward[a]
        Q_u = seen[1] if "utility" in policy["learned"] else utility[a]
        Q_r += min(max(c["C_r"] * bonus + r, 0), left * (1 + c["kappa"] * log(A)))
        Q_dagger = c["B_dagger"] * bonus + min(max(c["C_dagger"] * bonus + dagger, 0), c["B_dagger"] * left)
        Q_u += min(max(c["utility_bonus"] * bonus + u, left - c.get("most_lost", left), 0), left)
        logits.append((Q_dagger + Q_r + policy["lam"] * Q_u) / c["kappa"])
    weights = [exp(logit - max(logits)) for logit in logits]
    return [weight / sum(weights) for weight in weights]
