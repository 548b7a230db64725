"""A plain training loop for the shape of our language models, written as one writes it with PyTorch today.

Weights and optimizer state are fp32 and arithmetic is bf16 on a GPU, as in ours. The program is PyTorch's own:
`torch.compile`, PyTorch's attention (`language_attention`), a linear cross-entropy in chunks, fused AdamW. It shares no
code with our engine.
Shape letters: B rows, T tokens of a row, M tokens of all rows, H heads, K head width, D width, F inner width, V
vocabulary rows, P rotated pairs, C tokens of a chunk, N steps.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lengthwise.bench.language_attention import ATTENTIONS, AttentionProgram
from lengthwise.encodings.rotary import Rotary
from lengthwise.errors import UserError
from lengthwise.language.settings import LanguageSettings
from lengthwise.language.windows import Rows
from lengthwise.model.config import ModelConfig
from lengthwise.training.batches import NO_TARGET
from lengthwise.training.update import Measured

Loss = Literal["whole", "chunks"]
"""All logits at once, or the logits of some tokens after those of others."""
Mode = Literal["eager", "default", "reduce-overhead", "max-autotune-no-cudagraphs"]
"""`eager`: not compiled; else a mode of `torch.compile`."""

CHUNK = 4096
"""Tokens whose logits are in memory together: 64 MiB in bf16 with a vocabulary of 8,192."""


@dataclass(frozen=True)
class PeerVariant:
    """One way to write the loop."""

    attention: str
    """A name from ATTENTIONS."""
    loss: Loss = "whole"
    mode: Mode = "default"


class Rotations(nn.Module):
    """Rotary positions, from a table. Tokens count from the start of their row: between two of one sequence the
    distance is the same, and distances are all that rotations tell."""

    def __init__(self, config: Rotary.Config, head_width: int, length: int) -> None:
        super().__init__()
        self.rotated = int(head_width * config.fraction)
        spread = self.rotated if config.exponent == "rotated" else head_width
        frequency_P = config.base ** (-torch.arange(0, self.rotated, 2, dtype=torch.float32) / spread)
        angle_TP = torch.arange(length)[:, None] * frequency_P
        self.register_buffer("cosine_TP", angle_TP.cos(), persistent=False)
        self.register_buffer("sine_TP", angle_TP.sin(), persistent=False)

    def forward(self, x_BTHK: Tensor) -> Tensor:
        rotating, rest = x_BTHK[..., : self.rotated], x_BTHK[..., self.rotated :]
        a, b = rotating.float().unflatten(-1, (-1, 2)).unbind(-1)
        cosine, sine = cast(Tensor, self.cosine_TP)[:, None], cast(Tensor, self.sine_TP)[:, None]
        rotated = torch.stack([a * cosine - b * sine, a * sine + b * cosine], dim=-1).flatten(-2)
        return torch.cat([rotated.to(x_BTHK.dtype), rest], dim=-1)


def product(x: Tensor, weight: Tensor) -> Tensor:
    """In the precision of `x`: weights are kept in fp32, and rounded where they are read."""
    return F.linear(x, weight.to(x.dtype))


def normed(x: Tensor, weight_D: Tensor) -> Tensor:
    """RMSNorm, written out: the compiler joins it with what is beside it."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * weight_D.to(x.dtype)


class PeerBlock(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, inner = config.width, config.inner_width
        self.heads = config.heads
        self.attention_norm_D = nn.Parameter(torch.ones(width))
        self.query_key_value = nn.Parameter(torch.empty(3 * width, width))
        self.attention_output = nn.Parameter(torch.empty(width, width))
        self.feed_forward_norm_D = nn.Parameter(torch.ones(width))
        # One product for both: that is faster than two, forwards and backwards.
        self.gate_and_inner = nn.Parameter(torch.empty(2 * inner, width))
        self.feed_forward_output = nn.Parameter(torch.empty(width, inner))

    def forward(self, x_BTD: Tensor, rotations: nn.Module | None, attention: AttentionProgram, seen: Any) -> Tensor:
        joined = product(normed(x_BTD, self.attention_norm_D), self.query_key_value)
        q, k, v = joined.unflatten(-1, (3, self.heads, -1)).unbind(2)
        if rotations is not None:
            q, k = rotations(q), rotations(k)
        x_BTD = x_BTD + product(attention.mix(q, k, v, seen).flatten(2), self.attention_output)
        both = product(normed(x_BTD, self.feed_forward_norm_D), self.gate_and_inner)
        gate_BTF, inner_BTF = both.chunk(2, dim=-1)
        return x_BTD + product(F.silu(gate_BTF) * inner_BTF, self.feed_forward_output)


class PeerModel(nn.Module):
    """Tokens and targets in, the mean loss out."""

    def __init__(
        self,
        config: ModelConfig,
        vocabulary_rows: int,
        context: int,
        rotary: Rotary.Config | None,
        attention: AttentionProgram,
        loss: Loss,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        if config.style != "llama" or config.groups != config.heads or config.passes != config.layers or config.dropout:
            raise UserError("the plain loop is for models in the style of Llama, without shared keys, loops or dropout")
        self.attention, self.loss, self.dtype = attention, loss, dtype
        self.embedding_VD = nn.Parameter(torch.empty(vocabulary_rows, config.width))
        self.blocks = nn.ModuleList(PeerBlock(config) for _ in range(config.layers))
        self.rotations = None if rotary is None else Rotations(rotary, config.head_width, context)
        self.final_norm_D = nn.Parameter(torch.ones(config.width))
        self.unembedding_VD = nn.Parameter(torch.empty(vocabulary_rows, config.width))

    def forward(self, tokens_BT: Tensor, targets_BT: Tensor, seen: Any) -> Tensor:
        x_BTD = F.embedding(tokens_BT, self.embedding_VD).to(self.dtype)
        for block in self.blocks:
            x_BTD = block(x_BTD, self.rotations, self.attention, seen)
        states_MD = normed(x_BTD, self.final_norm_D).flatten(0, 1)
        targets_M = targets_BT.flatten().long()
        if self.loss == "chunks":
            return cast(Tensor, ChunkedCrossEntropy.apply(states_MD, self.unembedding_VD, targets_M))
        logits_MV = product(states_MD, self.unembedding_VD).float()
        return F.cross_entropy(logits_MV, targets_M, ignore_index=NO_TARGET)

    def as_ours(self, of: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """Parts of the parameters under the names and in the shapes that our decoder has: views of what `of` gives of
        each, which is the parameter itself or its gradient."""
        named = {"embedding.weight": of(self.embedding_VD)}
        for layer, each in enumerate(self.blocks):
            block = cast(PeerBlock, each)
            gate, inner = of(block.gate_and_inner).chunk(2)
            named |= {
                f"blocks.{layer}.attention_norm.weight": of(block.attention_norm_D),
                f"blocks.{layer}.attention.projection.weight": of(block.query_key_value).t(),
                f"blocks.{layer}.attention.output.weight": of(block.attention_output).t(),
                f"blocks.{layer}.feed_forward_norm.weight": of(block.feed_forward_norm_D),
                f"blocks.{layer}.feed_forward.gate.weight": gate.t(),
                f"blocks.{layer}.feed_forward.inner.weight": inner.t(),
                f"blocks.{layer}.feed_forward.output.weight": of(block.feed_forward_output).t(),
            }
        named["final_norm.weight"] = of(self.final_norm_D)
        named["unembedding.weight"] = of(self.unembedding_VD).t()
        return named


class ChunkedCrossEntropy(torch.autograd.Function):
    """Product with the unembedding and mean cross-entropy, some tokens after others.

    The gradients are found in the forward pass, where the logits are: none are kept, and none are computed again.
    """

    @staticmethod
    def forward(ctx: Any, states_MD: Tensor, weight_VD: Tensor, targets_M: Tensor) -> Tensor:
        rounded_VD = weight_VD.to(states_MD.dtype)
        count = (targets_M != NO_TARGET).sum()
        total = torch.zeros((), device=states_MD.device)
        dstates, dweight_VD = [], torch.zeros_like(weight_VD)
        rows_V = torch.arange(len(weight_VD), device=states_MD.device)
        for states_CD, targets_C in zip(states_MD.split(CHUNK), targets_M.split(CHUNK), strict=True):
            logits_CV = (states_CD @ rounded_VD.t()).float()
            log_sum_C = logits_CV.logsumexp(dim=-1)
            target_C = targets_C.clamp(min=0)
            real_C = targets_C != NO_TARGET
            loss_C = log_sum_C - logits_CV.gather(1, target_C[:, None])[:, 0]
            total = total + torch.where(real_C, loss_C, 0.0).sum()
            # Compared with every row instead of scattered: so all of it is one pass over the logits.
            dlogits_CV = (logits_CV - log_sum_C[:, None]).exp() - (rows_V == target_C[:, None]).float()
            dlogits_CV = (dlogits_CV * torch.where(real_C, 1 / count, 0.0)[:, None]).to(states_MD.dtype)
            dstates.append(dlogits_CV @ rounded_VD)
            dweight_VD = dweight_VD + dlogits_CV.t() @ states_CD
        ctx.save_for_backward(torch.cat(dstates), dweight_VD)
        return total / count

    @staticmethod
    def backward(ctx: Any, dloss: Tensor) -> tuple[Tensor, Tensor, None]:  # pyrefly: ignore
        dstates_MD, dweight_VD = ctx.saved_tensors
        return dstates_MD * dloss.to(dstates_MD.dtype), dweight_VD * dloss, None


@dataclass(frozen=True)
class PeerSteps:
    """Rows of several steps on the host, in memory that a GPU can fetch from."""

    tokens_NBT: Tensor
    segments_NBT: Tensor
    targets_NBT: Tensor
    rates_N: list[float]

    @classmethod
    def of(cls, rows: Rows, rates_N: list[float], pinned: bool) -> "PeerSteps":
        """`rows`: those of all steps, one step after the other."""
        parts = [torch.from_numpy(each) for each in (rows.tokens_RT, rows.segments_RT, rows.targets_RT)]
        cut = [part.unflatten(0, (len(rates_N), -1)) for part in parts]
        tokens, segments, targets = (part.pin_memory() if pinned else part for part in cut)
        return cls(tokens, segments, targets, rates_N)


class PeerLoop:
    """The training loop."""

    def __init__(
        self,
        settings: LanguageSettings,
        vocabulary_rows: int,
        device: torch.device,
        variant: PeerVariant,
        sequences: int,
        weights: Mapping[str, Tensor],
    ) -> None:
        """`sequences`: how many the rows of a step hold at most. `weights`: initial ones, by our decoder's names."""
        recipe = settings.training
        self.device, self.clip = device, recipe.clip
        compiles = variant.mode != "eager"
        self.attention = ATTENTIONS[variant.attention](sequences, compiles)
        dtype = torch.bfloat16 if recipe.recipe.precision_on(device.type) == "bf16" else torch.float32
        shape = (settings.model, vocabulary_rows, settings.data.context, rotary_of(settings))
        self.model = PeerModel(*shape, self.attention, variant.loss, dtype).to(device)
        with torch.no_grad():
            for name, view in self.model.as_ours(lambda parameter: parameter.data).items():
                view.copy_(weights[name])
        self.program: Callable[..., Tensor] = self.model
        if compiles:
            self.program = torch.compile(self.model, mode=variant.mode, dynamic=False)
        self.replays = variant.mode == "reduce-overhead"
        self.parameters = list(self.model.parameters())
        groups = [
            {"params": [p for p in self.parameters if p.ndim > 1], "weight_decay": recipe.weight_decay},
            {"params": [p for p in self.parameters if p.ndim == 1], "weight_decay": 0.0},
        ]
        betas = (recipe.beta1, recipe.beta2)
        self.optimizer = torch.optim.AdamW(groups, recipe.learning_rate, betas, recipe.epsilon, fused=True)

    def loss(self, tokens_BT: Tensor, segments_BT: Tensor, targets_BT: Tensor) -> Tensor:
        """The mean loss of a step; its gradient is added to what the parameters have."""
        seen = self.attention.seen(segments_BT)
        if self.replays:
            torch.compiler.cudagraph_mark_step_begin()
        loss = self.program(tokens_BT, targets_BT, seen)
        loss.backward()
        # A replayed graph writes its result to the same place every time.
        return loss.detach().clone() if self.replays else loss.detach()

    def gradients(self, steps: PeerSteps) -> tuple[float, dict[str, Tensor]]:
        """Loss and gradients of the first of some steps, by our decoder's names; nothing is changed."""
        with self.attention.allowed():
            arrays = (steps.tokens_NBT, steps.segments_NBT, steps.targets_NBT)
            loss = float(self.loss(*(each[0].to(self.device) for each in arrays)))
        found = self.model.as_ours(lambda parameter: cast(Tensor, parameter.grad).float())
        found = {name: view.clone() for name, view in found.items()}
        self.optimizer.zero_grad(set_to_none=True)
        return loss, found

    def run(self, steps: PeerSteps) -> Measured:
        """Several updates. The host waits for none of them: losses and norms come at the end."""
        arrays = (steps.tokens_NBT, steps.segments_NBT, steps.targets_NBT)
        tokens, segments, targets = (each.to(self.device, non_blocking=True) for each in arrays)
        values = []
        with self.attention.allowed():
            for step, rate in enumerate(steps.rates_N):
                for group in self.optimizer.param_groups:
                    group["lr"] = rate
                loss = self.loss(tokens[step], segments[step], targets[step])
                norm = nn.utils.clip_grad_norm_(self.parameters, self.clip, foreach=True)
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=True)
                values.append(torch.stack([loss, norm]))
        return Measured(torch.stack(values)[:, :, None].cpu())


def rotary_of(settings: LanguageSettings) -> Rotary.Config | None:
    """The settings of rotary positions; None without positions. Refuses every other encoding."""
    tables = settings.choice.layers
    if len(tables) == 1 and tables[0].get("name") == "none":
        return None
    if len(tables) == 1 and tables[0].get("name") == Rotary.name:
        config = Rotary.Config(**{key: value for key, value in tables[0].items() if key != "name"})
        if config.pairs == "interleaved":
            return config
    raise UserError(
        f"the plain loop has no {settings.choice.label}: it is written for none and for rotary, neighbours as pairs"
    )
