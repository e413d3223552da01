"""The two array types of the library. Shapes are written in docstrings: H steps, S states, A actions, d features."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
