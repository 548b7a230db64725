"""The best uniform scale of a model at each of some lengths."""

from collections.abc import Callable, Sequence

from lengthwise.context_extension.fitting_rows import Targets
from lengthwise.context_extension.loaded_model import LoadedModel
from lengthwise.context_extension.perplexity import perplexity_at
from lengthwise.context_extension.search import Search, search_scale


def search_uniform(
    loaded: LoadedModel,
    targets: Targets,
    contexts: Sequence[int],
    told: Callable[[int, Search], None] = lambda context, found: None,
) -> dict[int, Search]:
    """Context -> what was tried there; the loss is that of the same targets at every context."""
    found = {}
    for context in contexts:

        def loss_of(scale: float, context: int = context) -> float:
            tables = [{"name": "uniform-scale", "constant": scale}]
            return perplexity_at(loaded.extended(tables, context), targets, context).loss

        found[context] = search_scale(loss_of)
        told(context, found[context])
    return found
