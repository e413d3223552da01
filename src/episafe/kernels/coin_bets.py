"""Bets against a coin: is the component that acts drawn by the weights that were written down?

Let an event be told before the coin falls, p = Σ of the weights of the components in it. If the coin is true,

    g = (1 − p)/p if it happens, −1 if not         more often than p
    g = (p − 1)/(1 − p) = −1 if it happens, p/(1 − p) if not     less often than p

both have conditional mean 0, so that `claim_wealth` applies. Three events, two rows each: the incumbent acts; the
component with the number of the last one that was known acts again; the heaviest component acts. A component without
any weight that acts is a contradiction by itself.
"""

import numpy as np

from episafe.kernels.claim_wealth import OF_COIN, ROWS, credit, judge
from episafe.kernels.compilation import kernel


@kernel
def weigh_coin(purse, block, weights, safe, before, drawn, log_term):  # type: ignore[no-untyped-def]
    """Take in one coin: `weights` and `safe` (n,), 1 where a component is the incumbent; `before` is −1 if unknown."""
    claim, row, heaviest = OF_COIN, ROWS[OF_COIN], np.argmax(weights)
    p = 0.0
    for i in range(weights.shape[0]):
        p += safe[i] * weights[i]
    _bet(purse, block, row, p, safe[drawn] == 1)
    if 0 <= before < weights.shape[0]:
        _bet(purse, block, row + 2, weights[before], drawn == before)
    _bet(purse, block, row + 4, weights[heaviest], drawn == heaviest)
    purse.counts[claim, 0] += 1
    purse.sums[claim, 0] += safe[drawn]
    purse.sums[claim, 1] += p
    if weights[drawn] <= 0.0 and purse.counts[claim, 1] == 0:
        purse.counts[claim, 1] = purse.counts[claim, 0]
    judge(purse, claim, block, log_term)


@kernel
def _bet(purse, block, row, p, happened):  # type: ignore[no-untyped-def]
    """Bet on both sides of an event of probability p; what is certain says nothing."""
    if 0.0 < p < 1.0:
        credit(purse, block, row, (1.0 - p) / p if happened else -1.0)
        credit(purse, block, row + 1, -1.0 if happened else p / (1.0 - p))
