// Acts by a policy file of episafe (docs/policies.md): JSON.parse it, draw() once an episode, then ask at each step.
const dot = (x, y) => x.reduce((sum, value, i) => sum + value * y[i], 0);
const clip = (value, most, least = 0) => Math.min(Math.max(value, least, 0), most);

export function draw(policy, uniform) { // uniform: Math.random(); the component that acts for the whole episode
  if (policy.kind !== "mixture") return policy;
  let sum = 0;
  return policy.components.find((_, i) => (sum += policy.weights[i]) > uniform) ?? policy.components.at(-1);
}

export function probabilities(policy, h, state, phi, reward, utility) { // phi, …: a row for each action, as the task
  if (policy.kind === "table") return policy.table[h][state];
  if (policy.kind === "steps") return policy.steps[h]; // whatever the state
  if (policy.kind === "rows" && Object.hasOwn(policy.rows[h], state)) return policy.rows[h][state]; // by its text
  const c = policy.scales, left = policy.horizon - 1 - h, A = policy.num_actions, learned = policy.learned;
  const logits = Array.from({ length: A }, (_, a) => {
    let { beta, bonus } = policy, values = [0, 0, 0], means = [0, 0];
    if (policy.kind === "softmax") {
      beta = Math.sqrt(Math.max(dot(phi[a], policy.gram_inv[h].map((row) => dot(row, phi[a]))), 0));
      bonus = beta * (1 + c.curve * beta);
      values = policy.weights[h].map((w) => dot(w, phi[a]));
      if (learned.length) means = policy.theta[h].map((w) => dot(w, phi[a]));
    }
    const seen = means.map((mean, g) => clip(mean + policy.signal_scales[g] * beta, 1));
    const Q_r = (learned.includes("reward") ? seen[0] : reward[a]) + clip(c.C_r * bonus + values[0], left * (1 + c.kappa * Math.log(A)));
    const Q_dagger = c.B_dagger * bonus + clip(c.C_dagger * bonus + values[1], c.B_dagger * left);
    const Q_u = (learned.includes("utility") ? seen[1] : utility[a]) + clip(c.utility_bonus * bonus + values[2], left, left - (c.most_lost ?? left));
    return (Q_dagger + Q_r + policy.lam * Q_u) / c.kappa;
  });
  const weights = logits.map((logit) => Math.exp(logit - Math.max(...logits)));
  return weights.map((weight) => weight / weights.reduce((sum, one) => sum + one, 0));
}
