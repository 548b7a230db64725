"""Makes every type of causal language model in Transformers, tiny, with random weights; says which can be extended.

`python tests/architectures.py docs/hugging-face-models.md` writes the page. Each type is tried in a process of its own.
"""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

SECONDS = 120
LARGEST = 20_000_000
"""Parameters of a model that counts as tiny."""
TRAINED, LENGTH = 16, 40
BASE: dict[str, Any] = {
    "vocab_size": 61, "hidden_size": 64, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
EXPERTS = {
    "moe_intermediate_size": 32, "num_experts": 4, "n_routed_experts": 4, "num_local_experts": 4,
    "num_experts_per_tok": 2, "num_experts_per_token": 2, "n_group": 1, "topk_group": 1,
}  # fmt: skip
LATENT = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16}
ATTEMPTS: list[dict[str, Any]] = [
    {}, {"head_dim": 16}, {"num_key_value_heads": 4}, {"head_dim": 16, **EXPERTS}, EXPERTS,
    {"num_key_value_heads": 4, **EXPERTS, **LATENT}, {"n_layer": 2, "n_head": 4}, {"rotary_dim": 8, "n_head": 4},
    {"ffn_dim": 80, "word_embed_proj_dim": 64}, {"head_dim": 16, "layer_types": ["full_attention"] * 2},
    {"head_dim": 16, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 11},
]  # fmt: skip
"""Further settings under which a type may come out tiny; the first that do are taken."""


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] == "--try":
        print(json.dumps(tried(sys.argv[2])))
        return
    from transformers import __version__ as version
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    found = {}
    for name in sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        call = [sys.executable, __file__, "--try", name]
        try:
            done = subprocess.run(call, capture_output=True, text=True, timeout=SECONDS, check=False)
            found[name] = json.loads(done.stdout.splitlines()[-1])
        except (subprocess.TimeoutExpired, json.JSONDecodeError, IndexError):
            found[name] = ["not made", "the process did not come to an end"]
        print(name, *found[name], file=sys.stderr)
    Path(sys.argv[1]).write_text(page(found, version))


def tried(name: str) -> list[str]:
    """`read` and its encodings, `refused` and the reason, or `not made` and why."""
    import torch

    import lengthwise as lw
    from lengthwise.context_extension.transformers_reader import TransformersReader
    from lengthwise.errors import UserError

    model, reason = tiny(name)
    if model is None:
        return ["not made", reason]
    try:
        reader = TransformersReader.of(model, TRAINED, name)
    except UserError as error:
        return ["refused", str(error)]
    length = LENGTH if reader.last_position is None else min(LENGTH, reader.last_position + 1)
    tokens_BT = torch.randint(3, 61, (1, length), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        scaled = reader.extended([lw.extension("uniform-scale", constant=1.5)], length).logits(tokens_BT)
        assert not torch.equal(scaled, model(tokens_BT, use_cache=False).logits)
    return ["read", ", ".join(dict.fromkeys(reader.names))]


def tiny(name: str) -> tuple[Any, str]:
    """The model, or None and why there is none."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    reason = ""
    for more in ATTEMPTS:
        try:
            config = CONFIG_MAPPING[name](**{**BASE, **more})
            with torch.device("meta"):
                size = sum(each.numel() for each in AutoModelForCausalLM.from_config(config).parameters())
            if size > LARGEST:
                reason = reason or "its config has no tiny form here"
                continue
            torch.manual_seed(0)
            model = AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    parameter.mul_(3)  # so that attention is not nearly even, and tells what is done to it
            model(torch.arange(3, 15)[None])
        except Exception as error:  # settings that do not go together
            reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
            continue
        return model, ""
    return None, reason


def page(found: dict[str, list[str]], version: str) -> str:
    counts = Counter(outcome for outcome, _ in found.values())
    read = {name: said for name, (outcome, said) in found.items() if outcome == "read"}
    lines = [
        "# Which models of Transformers can be extended",
        "",
        f"The {len(found)} types of causal language model in Transformers {version}, made tiny with random weights:",
        f"{counts['read']} are read, {counts['refused']} are refused with a reason, and of {counts['not made']} no",
        "tiny model was made, so nothing is known. A real model is checked in the same way when it is opened.",
        "",
        "```text",
        "python tests/architectures.py docs/hugging-face-models.md",
        "```",
        "",
        "## Read",
        "",
    ]
    for kind in sorted(set(read.values())):
        names = ", ".join(f"`{name}`" for name, said in read.items() if said == kind)
        lines += [f"**{kind}**: {names}", ""]
    for outcome, title in (("refused", "Refused"), ("not made", "Not tried")):
        lines += [f"## {title}", "", "| type | reason |", "|---|---|"]
        for name, (was, said) in found.items():
            if was == outcome:
                said = said.replace(f"{name} ", "", 1).replace("|", "/").replace("<", "&lt;")
                lines.append(f"| `{name}` | {said[:150]} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    main()
