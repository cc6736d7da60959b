# SPDX-License-Identifier: Apache-2.0
"""The reward says how near an answer comes to the right sentence."""

from sentinel.demo.kit.reward import compute_score

TRUTH = "12 plus 7 is 19."


def test_the_right_sentence_earns_one():
    assert compute_score("d", TRUTH, TRUTH) == 1.0


def test_nearer_earns_more_and_nothing_wrong_earns_one():
    near = compute_score("d", "12 plus 7 is 18.", TRUTH)
    far = compute_score("d", "Anna has 3 coins now.", TRUTH)

    assert 0 < far < near < 1
    assert compute_score("d", "", TRUTH) == 0.0
