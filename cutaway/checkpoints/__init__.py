"""Weights, tokenizers and configurations on disk: read strictly, without a second copy, and written back.

Start with `pull` (named models into the cache folder), then `gguf` and `safetensors` (the two file formats).
"""
