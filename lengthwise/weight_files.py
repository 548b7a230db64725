"""Which files of a Hugging Face folder hold its weights."""

from pathlib import Path

from lengthwise import door
from lengthwise.errors import UserError

MOST_BYTES = 2**42
"""Of a file of weights."""
INDEX = door.Object({"weight_map": door.ANY_OBJECT})


def weight_files(path: Path) -> list[Path]:
    """Those of the folder itself: an index may name no others."""
    for name, ending in (("model.safetensors", ".safetensors"), ("pytorch_model.bin", ".bin")):
        index = path / f"{name}.index.json"
        if index.exists():
            parts = door.read_json(index, INDEX, door.SMALL)["weight_map"]
            named = {str(part) for part in parts.values()}
            for part in named:
                if Path(part).name != part or not part.endswith(ending) or "\0" in part:
                    raise UserError(
                        f"{index} names {door.visible(part, 80)!r}, which is no {ending} file of its folder"
                    )
            files = [path / part for part in sorted(named)]
        elif (path / name).exists():
            files = [path / name]
        else:
            continue
        for file in files:
            door.refuse_unreadable(file, MOST_BYTES, UserError)
        return files
    raise UserError(f"{path} holds no weights: neither model.safetensors nor pytorch_model.bin, nor an index of parts")
