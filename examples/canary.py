"""A canary release: two new versions of a service, of which only totals are seen, replace the old one step by step.

A deployment is one hour. The utility is the share of requests answered in time, and must be at least 0.9 in
expectation; the old version is known to reach 0.97. Each version gets as much traffic as is proved to be safe.
"""

import numpy as np

import episafe as es

TRUTH = {"image:v1": (0.98, 100.0), "image:v2": (0.975, 130.0), "image:v3": (0.70, 150.0)}  # which nobody knows


def serve(image, rng):
    """Return the share in time and the revenue of an hour; your system goes here."""
    share, revenue = TRUTH[image]
    return float(np.clip(share + 0.02 * rng.normal(), 0.0, 1.0)), revenue + 5 * rng.normal()


def main(num_hours=1_000, seed=0):
    agent = es.Rollout(0.9, 0.07, candidates={"v2": "image:v2", "v3": "image:v3"}, incumbent="image:v1", delta=0.05)
    session, rng, hours = es.open(None, agent), np.random.default_rng(seed), dict.fromkeys(TRUTH, 0)  # or a folder
    for _ in range(num_hours):
        deployment = session.deploy()
        image = deployment.policy.given
        hours[image] += 1
        in_time, revenue = serve(image, rng)
        session.report(deployment.id, es.Episode.of_totals(in_time, revenue))
    for (image, count), bound in zip(hours.items(), session.bounds().values(), strict=True):
        print(f"{image:10} acted in {count:4} hours, at least {bound[0]:.3f} in time (95 % confidence)")
    return hours, session.bounds()


if __name__ == "__main__":
    main()
