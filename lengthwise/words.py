"""The words that people use for our things: other names of one thing, and what else a word may mean.

An alias has exactly one meaning and works in place of the name; results carry the name. A word that may mean several
things, or nearly what it says, is only answered with them. Any case is read, and `-`, `_`, `.` and spaces are alike.
"""

from collections.abc import Iterable

ENCODINGS = {
    "rope": "rotary",
    "roformer": "rotary",
    "rotary-embedding": "rotary",
    "nope": "none",
    "no-positions": "none",
    "ape": "sinusoidal",
    "t5-bias": "t5",
    "t5-relative": "t5",
    "cable": "fox",
    "forgetting-transformer": "fox",
    "scalable-softmax": "ssmax",
    "sliding-window": "window",
    "swa": "window",
    "attention-sink": "sink",
}
EXTENSIONS = {
    "pi": "position-interpolation",
    "linear": "position-interpolation",
    "ntk-aware": "ntk",
    "streaming-llm": "streaming",
    "dca": "dual-chunk",
}
TASKS = {
    "selective-copying": "selective_copy",
    "niah": "needle",
    "needle-in-a-haystack": "needle",
    "pcfg-set": "pcfg",
}
MIXERS = {"gdn": "gated-delta-net"}
SETTINGS = {"lr": "learning_rate", "lr_multiplier": "rate"}
"""`rate` of `t5` keeps its name: it is in the fingerprints and labels of runs that people have."""

MEANT: dict[str, tuple[str, ...]] = {
    # positions
    "absolute": ("sinusoidal", "learned", "theory absolute"),
    "relative": ("t5", "alibi", "kerple", "fire", "theory relative"),
    "bias": ("t5", "alibi", "kerple", "fire"),
    "embedding": ("learned", "sinusoidal"),
    "gpt2": ("learned",),
    "llama": ("rotary", "llama3"),
    "llama4": ("irope", "llama4-temperature"),
    "gemma": ("p-rope",),
    "bipe": ("bilevel",),
    "random": ("randomized", "random-start", "random-float"),
    "hybrid": ("smollm3", "rnope-swa", "swan"),
    "temperature": ("llama4-temperature", "logn", "ssmax", "adaptive-temperature", "uniform-scale"),
    "scale": ("logn", "ssmax", "uniform-scale", "head-scale"),
    "softmax": ("ssmax", "entmax", "asentmax"),
    "forget": ("fox",),
    "gate": ("gated-output", "fox", "cope"),
    "local": ("window", "chunk", "hard-alibi"),
    "interpolation": ("position-interpolation", "yarn", "ntk"),
    "dynamic": ("dynamic-ntk",),
    "sinks": ("sink", "streaming"),
    "coupling": ("coupled",),
    "position-coupling": ("coupled",),
    "ssm": ("mamba2",),
    "mamba": ("mamba2",),
    "rwkv": ("rwkv7",),
    "rnn": ("lstm", "gated-recurrence"),
    "recurrence": ("gated-recurrence",),
    # tasks
    "add": ("addition", "chomsky.binary_addition", "summation"),
    "adder": ("addition", "chomsky.binary_addition"),
    "arithmetic": ("addition", "multiplication", "polynomial", "chomsky.modular_arithmetic"),
    "sum": ("summation", "addition"),
    "multiply": ("multiplication", "chomsky.binary_multiplication"),
    "brackets": ("dyck", "chomsky.modular_arithmetic_brackets"),
    "parentheses": ("dyck",),
    "associative-recall": ("mqar", "mqmtar"),
    "recall": ("mqar", "mqmtar", "needle"),
    "retrieval": ("needle", "mqar", "max_retrieval"),
    "passkey": ("needle", "extend passkey"),
    "counting": ("majority", "parity", "copy.repeat"),
    "group": ("state_tracking",),
    "automaton": ("regular", "state_tracking"),
    "language": ("regular", "dyck", "scan", "pcfg"),
    "sorting": ("sort.symbols", "sort.numbers", "chomsky.bucket_sort"),
    # studies
    "demo": ("quickstart",),
    "example": ("quickstart",),
    "first": ("quickstart",),
    "paper": ("nope-paper", "battery-small", "headscale-small"),
    "kazemnejad": ("nope-paper", "battery-small"),
    "nope": ("nope-paper",),
    "leaderboard": ("methods",),
    # settings
    "batch_size": ("batch", "batch_tokens"),
    "d_model": ("width",),
    "hidden_size": ("width",),
    "embed_dim": ("width",),
    "n_layers": ("layers",),
    "num_layers": ("layers",),
    "depth": ("layers",),
    "n_heads": ("heads",),
    "num_heads": ("heads",),
    "max_steps": ("steps", "tokens"),
    "iterations": ("steps",),
    "epochs": ("steps", "tokens"),
    "seed": ("seeds",),
    "task": ("tasks",),
    "encoding": ("encodings",),
    "normalization": ("normalizers",),
    "optimizer": ("training",),
    "wd": ("weight_decay",),
    # sizes
    "large": ("base", "1b"),
    "medium": ("small", "base"),
}
"""A word -> what it may mean, the likeliest first. Of these, those are named that there are where the word was used."""

COMMANDS: dict[str, tuple[str, ...]] = {
    "train": ("run", "language train"),
    "fit": ("run", "extend fit"),
    "start": ("run",),
    "resume": ("run",),
    "sweep": ("run",),
    "eval": ("evaluate", "show", "run"),
    "evaluate": ("show", "run"),
    "test": ("evaluate", "show", "run"),
    "score": ("evaluate", "show"),
    "ls": ("list",),
    "info": ("list", "show", "language info"),
    "plot": ("report",),
    "figure": ("report",),
    "figures": ("report",),
    "draw": ("report",),
    "html": ("report",),
    "table": ("show", "extend compare"),
    "results": ("show", "collect"),
    "rank": ("show", "leaderboard"),
    "diff": ("compare",),
    "merge": ("collect",),
    "share": ("collect", "export"),
    "convert": ("export",),
    "save": ("export",),
    "push": ("export",),
    "hub": ("export",),
    "generate": ("dataset", "sample"),
    "data": ("dataset", "sample", "bench data"),
    "examples": ("sample", "dataset"),
    "inspect": ("analyze heads", "sample"),
    "probe": ("analyze probes",),
    "attention": ("analyze heads", "analyze distance"),
    "benchmark": ("bench",),
    "profile": ("bench profile",),
    "time": ("bench",),
    "yarn": ("extend perplexity",),
    "perplexity": ("extend perplexity",),
    "passkey": ("extend passkey",),
    "lm": ("language train",),
    "tokenize": ("language prepare",),
    "prepare": ("language prepare",),
    "help": ("--help",),
    "version": ("--version",),
    # of groups, behind their name
    "analyze attention": ("analyze heads", "analyze distance"),
    "analyze entropy": ("analyze heads", "extend entropy"),
    "analyze positions": ("analyze probes",),
    "analyze errors": ("analyze failures",),
    "analyze similarity": ("analyze distance",),
    "extend yarn": ("extend perplexity", "extend fit"),
    "extend eval": ("extend perplexity", "extend passkey"),
    "extend finetune": ("extend fit",),
    "extend train": ("extend fit", "extend study"),
    "language tokenize": ("language prepare",),
    "language eval": ("extend perplexity",),
    "theory 1": ("theory absolute",),
    "theory 2": ("theory relative",),
}
"""A word where a command stands -> our commands that it may mean; only those are named that there are."""

OPTIONS: dict[str, tuple[str, ...]] = {
    "gpu": ("--device cuda",),
    "gpus": ("--device cuda", "--workers"),
    "cuda": ("--device cuda",),
    "cpu": ("--device cpu",),
    "jobs": ("--workers",),
    "processes": ("--workers",),
    "lr": ("--learning-rate", "--set training.learning_rate=0.001"),
    "learning-rate": ("--set training.learning_rate=0.001",),
    "steps": ("--set training.steps=2000",),
    "epochs": ("--tokens", "--set training.steps=2000"),
    "batch-size": ("--batch", "--batch-tokens", "--set training.batch=64"),
    "size": ("--set model.size=small",),
    "seed": ("--set seeds=[1]",),
    "seeds": ("--set seeds=[1,2,3]",),
    "encoding": ("--only encoding=none", "--set encodings=['none']", "--reference"),
    "pe": ("--encoding", "--only encoding=none", "--set encodings=['none']"),
    "task": ("--only task=copy.repeat", "--set tasks=['copy.repeat']"),
    "filter": ("--only",),
    "output": ("--out", "--to"),
    "o": ("--out", "--to"),
    "dir": ("--out", "--to"),
    "out": ("--to",),
    "to": ("--out",),
    "n": ("--count", "--examples"),
    "num": ("--count", "--examples"),
    "method": ("--extension yarn:factor=4",),
    "yarn": ("--extension yarn:factor=4",),
    "factor": ("--extension yarn:factor=4",),
    "length": ("--lengths", "--context"),
    "best": ("--checkpoint best",),
    "config": ("--set NAME=VALUE",),
    "resume": (),
    "v": ("--version",),
}
"""A word where an option stands -> our options that it may mean; only those are named that the command has."""


def plain(name: str) -> str:
    """A name as it is compared: `NoPE` is `nope`, `flip-flop` is `flip_flop`."""
    return name.lower().translate(str.maketrans("", "", "-_. "))


_MEANT = {plain(word): names for word, names in MEANT.items()}


def meant(word: str) -> tuple[str, ...]:
    """What a word may mean, whether or not it is there."""
    return _MEANT.get(plain(word), ())


def spelled(name: str, known: Iterable[str]) -> str | None:
    """The one known name that is spelled like `name` but for case and separators."""
    found = [each for each in known if plain(each) == plain(name)]
    return found[0] if len(found) == 1 else None
