"""Images as sequences of vectors."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from cutaway.reference.functions import Array, linear
from cutaway.reference.weights import Weights


def patches(images: ArrayLike, height: int, width: int) -> Array:
    """Images [B, C, H, W] as patches [B, (H / height) (W / width), C height width], row by row.

    A patch lists its first channel row by row, then the next. (Dosovitskiy et al. 2020, arXiv:2010.11929.)

    >>> patches([[[[1, 2, 3, 4], [5, 6, 7, 8]]]], 2, 2).tolist()
    [[[1.0, 2.0, 5.0, 6.0], [3.0, 4.0, 7.0, 8.0]]]
    """
    images = np.asarray(images, np.float64)
    _, _, rows, columns = images.shape
    return np.stack(
        [
            images[:, :, top : top + height, left : left + width].reshape(len(images), -1)
            for top in range(0, rows, height)
            for left in range(0, columns, width)
        ],
        axis=1,
    )


def patch_embedding(images: ArrayLike, patch: tuple[int, int], weights: Weights) -> Array:
    """W patch + b, [B, T, D]; the vector `class_token` [D] stands before them where there is one."""
    x = linear(patches(images, *patch), weights.need("patches.weight"), weights.get("patches.bias"))
    first = weights.get("class_token")
    if first is None:
        return x
    return np.concatenate((np.broadcast_to(first, (len(x), 1, x.shape[-1])), x), axis=1)
