"""Models to and from Hugging Face's Transformers.

After `import lengthwise.hub`, AutoConfig, AutoModelForCausalLM and AutoTokenizer read what `lengthwise export` writes.
"""

from lengthwise.errors import UserError

try:
    import tokenizers as _tokenizers  # noqa: F401
    import transformers as _transformers
except ImportError as error:
    raise UserError(
        f"lengthwise.hub needs Hugging Face's libraries, and here {error.name or 'one of them'} is missing: "
        "pip install 'lengthwise[hub]'"
    ) from error

from lengthwise.hub.cache import LengthwiseCache
from lengthwise.hub.configuration import LengthwiseConfig
from lengthwise.hub.model import LengthwiseForCausalLM
from lengthwise.hub.spelling_tokenizer import LengthwiseSpellingTokenizer
from lengthwise.hub.tokenizer import LengthwiseTokenizer

__all__ = [
    "LengthwiseCache",
    "LengthwiseConfig",
    "LengthwiseForCausalLM",
    "LengthwiseSpellingTokenizer",
    "LengthwiseTokenizer",
]

_transformers.AutoConfig.register(LengthwiseConfig.model_type, LengthwiseConfig, exist_ok=True)
_transformers.AutoModelForCausalLM.register(LengthwiseConfig, LengthwiseForCausalLM, exist_ok=True)
_transformers.AutoTokenizer.register(
    LengthwiseConfig, LengthwiseTokenizer, slow_tokenizer_class=LengthwiseSpellingTokenizer, exist_ok=True
)
