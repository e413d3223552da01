"""Ways to tamper with an audit trail; each returns what it did."""

import shutil

import numpy as np

WAYS = ("edit", "delete", "swap", "truncate", "cut", "insert", "number", "foreign trail", "foreign log")


def tamper(way, folder, other, rng):
    """Change the trail of `folder`; `other` is a run of its own whose files may be put in place."""
    path = folder / "audit.jsonl"
    lines = path.read_text().splitlines()
    n = int(rng.integers(len(lines)))
    if way == "edit":  # one digit of one value, anywhere in the line
        places = [i for i, letter in enumerate(lines[n]) if letter.isdigit()]
        i = int(rng.choice(places))
        lines[n] = lines[n][:i] + str((int(lines[n][i]) + int(rng.integers(1, 10))) % 10) + lines[n][i + 1 :]
    elif way == "delete":
        del lines[n]
    elif way == "swap":
        m = (n + int(rng.integers(1, len(lines)))) % len(lines)
        lines[n], lines[m] = lines[m], lines[n]
    elif way == "truncate":  # often only the last line
        del lines[len(lines) - int(rng.choice([1, 1, 2, 5])) :]
    elif way == "cut":
        path.write_text("\n".join(lines)[: -int(rng.integers(1, 200))])
        return
    elif way == "insert":
        lines.insert(n, lines[int(rng.integers(len(lines)))])
    elif way == "number":  # all hashes computed anew after an edit: only the journal can tell
        lines = rehashed(lines, n)
    elif way == "foreign trail":
        shutil.copy(other / "audit.jsonl", path)
        return
    elif way == "foreign log":
        shutil.copy(other / "journal.log", folder / "journal.log")
        return
    path.write_text("".join(f"{line}\n" for line in lines))


def rehashed(lines, n):
    """Line n with another λ or count, and every hash from there on made anew, as a forger would."""
    import hashlib
    import re

    previous = re.search(r'"previous":"(\w+)"', lines[n])[1]
    found = lines[:n]
    for i, line in enumerate(lines[n:]):
        text = line.rpartition(',"hash"')[0]
        text = re.sub(r'"previous":"\w+"', f'"previous":"{previous}"', text)
        if i == 0:
            text = re.sub(r'"learned":(\d+)', lambda m: f'"learned":{int(m[1]) + 1}', text)
        previous = hashlib.sha256(text.encode()).hexdigest()
        found.append(f'{text},"hash":"{previous}"}}')
    return found


def detected(count, make, work, audit):
    """How many of `count` tampered trails an audit finds; `make(folder, seed)` makes a run."""
    rng = np.random.default_rng(0)
    first, other = work / "first", work / "other"
    make(first, 0)
    make(other, 1)
    assert audit(first).is_whole
    kept = {name: (first / name).read_bytes() for name in ("audit.jsonl", "journal.log")}
    found, missed = 0, []
    for i in range(count):
        way = WAYS[i % len(WAYS)]
        tamper(way, first, other, rng)
        if audit(first).is_whole:
            missed.append(way)
        else:
            found += 1
        for name, data in kept.items():
            (first / name).write_bytes(data)
    assert audit(first).is_whole
    return found, missed
