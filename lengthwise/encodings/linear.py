"""Linear maps of many rows to a few numbers, as encodings make them of tokens, or of pairs of tokens.

Shape letters: R rows of a batch, T what each of them has, D width, C numbers.
"""

import torch
from torch import Tensor


def linear(x: Tensor, weight_CD: Tensor, bias_C: Tensor | None = None) -> Tensor:
    """`F.linear` in fp32. The gradient of the weights is found for each row of a batch apart and then added up.

    PyTorch finds it in one product, whose few results are sums over all tokens of the batch: a GPU has nothing to do
    side by side then, and takes up to a hundred times as long.
    """
    rows_RTD = x.float().reshape(-1, *x.shape[-2:])
    weight_RDC = weight_CD.float().t().expand(len(rows_RTD), -1, -1)
    out = torch.bmm(rows_RTD, weight_RDC).view(*x.shape[:-1], -1)
    return out if bias_C is None else out + bias_C.float()
