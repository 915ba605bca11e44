"""Linear attention: the features of its kernel are few, so all pairs are read without visiting any."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sbmt.baselines.base import Baseline, Inputs, keys_to_read


class LinearAttention(Baseline):
    r"""Attention over all real pairs with the kernel of the features $\phi(x) = \operatorname{elu}(x) + 1$.

    $$o_i = \frac{\sum_j \phi(q_i)^\top \phi(k_j)\, v_j}{\sum_j \phi(q_i)^\top \phi(k_j)}
          = \sum_f \operatorname{softmax}_f\Big(\log \phi_f(q_i) + \log \sum_j \phi_f(k_j)\Big)
            \sum_j \operatorname{softmax}_j\big(\log \phi_f(k_j)\big)\, v_j$$

    The right-hand side is what is computed, in float32 at least: each feature attends to the keys, then each query
    attends to the features. Both softmaxes subtract maxima that cancel, so no epsilon is needed where every product of
    features underflows. Nothing is learned, and there is no $1/\sqrt d$, since the kernel is not the softmax's.

    Args:
        dropout: On the output values, because attention weights are never formed; from PyTorch's global generator.

    Cost: O(n d²) time, O(n d + d²) memory per head.

    Source: Katharopoulos, Vyas, Pappas and Fleuret (2020), "Transformers are RNNs: Fast Autoregressive Transformers
    with Linear Attention"; a baseline in the paper's section 5. Deviation: the code used there omits the denominator
    and divides by √n, where n is the padded length.
    """

    def log_features(self, tokens: Float[Tensor, "*axes d"]) -> Float[Tensor, "*axes n_features"]:
        r"""$\log \phi(x)$: $\log (1 + x)$ above 0 and x below, where ``log(elu(x) + 1)`` would round to nothing."""
        return torch.where(tokens > 0, tokens.relu().log1p(), tokens)

    def attend(self, inputs: Inputs) -> Tensor:
        """The values."""
        query, key, value, _, key_mask, dropout, *_ = inputs
        log_query, log_key = self.log_features(query), self.log_features(key)
        if key_mask is not None:
            log_key = log_key.masked_fill(~keys_to_read(key_mask)[:, None, :, None], -torch.inf)
        read_by_feature = log_key.softmax(2).mT @ value  # batch heads n_features d_value
        values = (log_query + log_key.logsumexp(2, keepdim=True)).softmax(3) @ read_by_feature
        return nn.functional.dropout(values, dropout)
