"""The best policy known for examples/continuous.py: dynamic programming on a fine grid, with the equations known.

Not an optimum: values between grid points are interpolated, and one multiplier λ is the price of a push. Prints reward
and effort of a few λ over fresh starts; the largest reward within the limit is BEST_KNOWN of the example.
"""

import numpy as np

H, REPEAT, LIMIT = 25, 2, 10.0
TORQUES = np.array([-2.0, 0.0, 2.0])
LOWEST = -REPEAT * (np.pi**2 + 0.1 * 8**2 + 0.001 * 2**2)
ANGLES, SPEEDS = 181, 181


def advance(angle, speed, torque):
    """Angle, speed and scaled reward after one decision: Pendulum-v1 of Gymnasium, g = 10, m = l = 1."""
    reward = 0.0
    for _ in range(REPEAT):
        wrapped = (angle + np.pi) % (2 * np.pi) - np.pi
        reward = reward - (wrapped**2 + 0.1 * speed**2 + 0.001 * torque**2)
        speed = np.clip(speed + (15 * np.sin(angle) + 3 * torque) * 0.05, -8, 8)
        angle = angle + speed * 0.05
    return angle, speed, (reward - LOWEST) / -LOWEST


def between(values, angle, speed):
    """Bilinear interpolation of values (ANGLES, SPEEDS)."""
    x, y = ((angle + np.pi) % (2 * np.pi)) / (2 * np.pi) * (ANGLES - 1), (speed + 8) / 16 * (SPEEDS - 1)
    i, j = np.minimum(x.astype(int), ANGLES - 2), np.minimum(y.astype(int), SPEEDS - 2)
    a, b = x - i, y - j
    low = (1 - a) * values[i, j] + a * values[i + 1, j]
    return (1 - b) * low + b * ((1 - a) * values[i, j + 1] + a * values[i + 1, j + 1])


def solve(lam):
    """Q_h (A, ANGLES, SPEEDS) of reward − λ·push, for h = 0..H−1."""
    angle, speed = np.meshgrid(np.linspace(-np.pi, np.pi, ANGLES), np.linspace(-8, 8, SPEEDS), indexing="ij")
    after = [advance(angle, speed, torque) for torque in TORQUES]
    V, found = np.zeros((ANGLES, SPEEDS)), []
    for _ in range(H):
        Q = np.stack([r - lam * (u != 0) + between(V, a, s) for (a, s, r), u in zip(after, TORQUES, strict=True)])
        V = Q.max(axis=0)
        found.append(Q)
    return found[::-1]


def judge(Q, num_episodes=40_000, seed=5):
    """Mean reward and effort over random starts, with the 99 % half-width of the reward."""
    rng = np.random.default_rng(seed)
    angle, speed = rng.uniform(-np.pi, np.pi, num_episodes), rng.uniform(-1, 1, num_episodes)
    reward, effort = np.zeros(num_episodes), np.zeros(num_episodes)
    for h in range(H):
        torque = TORQUES[np.stack([between(q, angle, speed) for q in Q[h]]).argmax(axis=0)]
        angle, speed, r = advance(angle, speed, torque)
        reward += r
        effort += torque != 0
    return reward.mean(), 2.5758 * reward.std() / num_episodes**0.5, effort.mean()


if __name__ == "__main__":
    for lam in (0.0, 0.005, 0.01, 0.02, 0.05, 0.1):
        reward, half_width, effort = judge(solve(lam))
        over = "" if effort <= LIMIT else ", over the limit"
        print(f"λ {lam}: reward {reward:.3f} ± {half_width:.3f}, effort {effort:.2f}{over}")
