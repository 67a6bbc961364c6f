"""Text <-> ids, a thin layer over the `tokenizers` library. Nothing here knows torch.

`from_folder` and `from_gguf` load, `train` makes: all give a `Tokenizer`; `to_gguf` is the way back. `Stream` and
`StopStrings` turn growing ids into text that can be shown.
"""

from cutaway.tokenizers.from_gguf import from_gguf
from cutaway.tokenizers.load import from_folder
from cutaway.tokenizers.streaming import StopStrings, Stream
from cutaway.tokenizers.to_gguf import to_gguf
from cutaway.tokenizers.tokenizer import Tokenizer
from cutaway.tokenizers.train import train

__all__ = ["StopStrings", "Stream", "Tokenizer", "from_folder", "from_gguf", "to_gguf", "train"]
