"""Lives of sessions with kills in between: whole, recomputed, nothing acknowledged lost; what is forged is found."""

from collections import Counter

import numpy as np
import pytest

import killed_lives


@pytest.fixture(scope="module")
def two_lives(tmp_path_factory):
    folders = [tmp_path_factory.mktemp("lives") / str(seed) for seed in (0, 1)]
    return folders, [killed_lives.lived(folder, seed) for seed, folder in enumerate(folders)]


def test_a_life_that_is_killed_again_and_again_is_whole(two_lives):
    folders, (first, second) = two_lives
    assert first[0] >= killed_lives.KILLS and len(second[1]) > 10
    for seed, (folder, (_, done)) in enumerate(zip(folders, (first, second), strict=True)):
        assert killed_lives.faults_of(folder, seed, done) == []


def test_whatever_is_tampered_with_is_found(two_lives, tmp_path):
    (first, other), _ = two_lives
    rng = np.random.default_rng(0)
    found = Counter((way, killed_lives.found_by(way, first, other, rng, tmp_path)) for way in killed_lives.WAYS)
    assert not [way for way, how in found if not how]
    assert {way for way, how in found if how == "head"} <= set(killed_lives.FORGED)  # all others are found without it
