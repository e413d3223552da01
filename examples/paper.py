"""The paper's comparison on one problem of each environment: regret and violation of OPSE, Ghosh et al. and DOPE."""

import episafe as es

AGENTS = {"opse": es.OPSE, "ghosh": es.Ghosh2024, "dope": es.DOPE}


def main(num_episodes=2_000, seed=0, environments=("tabular", "streaming", "linear")):
    records = {}
    print(f"after {num_episodes} episodes       regret  violation  episodes of the incumbent")
    for env in environments:
        for name, agent in AGENTS.items():
            if (env, name) == ("linear", "dope"):
                continue  # as in the paper
            cmdp = es.make(env, seed)
            record = es.run(cmdp, agent(cmdp, es.Constants.paper(env, name)), num_episodes, seed)
            safe = int((record.sources == "safe").sum())
            print(f"{env:10} {name:12} {record.regret()[-1]:12.1f}  {record.violation()[-1]:9.2f}  {safe:9}")
            records[env, name] = record
    return records


if __name__ == "__main__":
    main()
