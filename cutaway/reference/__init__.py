"""The specification: every part of a Transformer written down by its definition, in NumPy float64.

Read in this order: functions, norms, positions, masks, attention, feedforward, residual, block, models; then loss,
sampling, optimizers. Functions take arrays and plain values; only `models` reads a spec. Weight matrices are
[out, in]: y = x W^T + b. Letters of shapes: B batch, T query, S key, D d_model, N heads, K key/value heads,
H head_dim, F d_ff, E experts, V vocabulary.
"""
