"""Examples for the help of every command: each works as it stands, in a folder that has what it names.

What they name: runs/quickstart, as `lengthwise run quickstart` leaves it, and a run of it, a folder `texts` of .txt
files, and language models that were trained on them in models/none and models/rotary.
"""

RUN = "runs/quickstart/copy.repeat/none/seed-1-*"
"""The shell finds the rest of the name, of which there is one."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "": (
        "lengthwise run quickstart",
        "lengthwise show runs/quickstart",
        "lengthwise report runs/quickstart --out report.html",
    ),
    "list": ("lengthwise list encodings", "lengthwise list studies --json"),
    "sample": (
        "lengthwise sample copy.words --length 4",
        "lengthwise sample addition --length 3 --scratchpad full",
    ),
    "run": (
        "lengthwise run quickstart",
        "lengthwise run quickstart --only task=copy.repeat,encoding=none",
        "lengthwise run quickstart --set training.steps=2000 --out runs/longer",
        "lengthwise run quickstart --dry-run",
    ),
    "track": ("lengthwise track runs/quickstart --to tensorboard --dir board",),
    "show": ("lengthwise show runs/quickstart", "lengthwise show runs/quickstart --checkpoint best"),
    "compare": (
        "lengthwise compare runs/quickstart",
        "lengthwise compare runs/quickstart --checkpoint last --json",
    ),
    "report": (
        "lengthwise report runs/quickstart --out report.html",
        "lengthwise report runs/quickstart --format csv --out tables",
    ),
    "leaderboard": (
        "lengthwise leaderboard runs/quickstart --out leaderboard.html",
        "lengthwise leaderboard runs/quickstart --out leaderboard.csv",
    ),
    "collect": ("lengthwise collect runs/quickstart --out shared",),
    "export": (f"lengthwise export {RUN} --to models/copy",),
    "evaluate": (
        "lengthwise evaluate models/copy --task copy.repeat --set symbols=500",
        "lengthwise evaluate http://127.0.0.1:8080 --task copy.words --shots 3",
    ),
    "lm-eval": ("lengthwise lm-eval --to lm-eval --task copy.words --lengths 5,10 --count 20",),
    "dataset": (
        "lengthwise dataset scan --out data/scan",
        "lengthwise dataset scan --all --out data/scan-all",
    ),
    "analyze": ("lengthwise analyze all runs/quickstart", "lengthwise analyze heads runs/quickstart"),
    "analyze distance": (
        "lengthwise analyze distance runs/quickstart",
        "lengthwise analyze distance runs/quickstart --across-seeds",
    ),
    "analyze heads": ("lengthwise analyze heads runs/quickstart --only encoding=none",),
    "analyze probes": ("lengthwise analyze probes runs/quickstart --only encoding=none",),
    "analyze failures": ("lengthwise analyze failures runs/quickstart --checkpoint best",),
    "analyze separator": ("lengthwise analyze separator runs/quickstart --only encoding=none",),
    "analyze all": ("lengthwise analyze all runs/quickstart",),
    "bench": ("lengthwise bench data --count 2000", "lengthwise bench train --fleet 1 --fleet 5 --steps 16"),
    "bench all": ("lengthwise bench all --out bench.json",),
    "bench data": ("lengthwise bench data --count 2000",),
    "bench train": (
        "lengthwise bench train --fleet 1 --fleet 5 --steps 16",
        "lengthwise bench train --size tiny --encoding none --encoding rotary",
        "lengthwise bench train --study quickstart --steps 16 --out costs.json",
    ),
    "bench trainer": ("lengthwise bench trainer --size tiny --steps 16",),
    "bench evaluate": ("lengthwise bench evaluate --size tiny --examples 1000",),
    "bench growth": ("lengthwise bench growth --what fleet --steps 16",),
    "bench language": (
        "lengthwise bench language --device cpu",
        "lengthwise bench language --context 512 --minutes 8 --out language.json",
    ),
    "bench profile": ("lengthwise bench profile --size tiny --encoding rotary",),
    "bench start": ("lengthwise bench start --size tiny",),
    "extend": (
        "lengthwise extend perplexity models/rotary --extension yarn:factor=4",
        "lengthwise extend study headscale-small --corpus texts --out runs/pair",
    ),
    "extend perplexity": (
        "lengthwise extend perplexity models/none --context 512,1024,2k",
        "lengthwise extend perplexity models/rotary --extension yarn:factor=4",
    ),
    "extend passkey": ("lengthwise extend passkey models/rotary --extension yarn:factor=auto",),
    "extend entropy": ("lengthwise extend entropy models/none --context 1024",),
    "extend uniform": ("lengthwise extend uniform models/none --context 1024",),
    "extend fit": (
        "lengthwise extend fit models/none head-scale --length 1024 --out scales",
        "lengthwise extend fit models/rotary yarn:factor=2 --length 1024 --out tuned",
    ),
    "extend compare": (
        "lengthwise extend compare models/rotary --extension yarn:factor=auto",
        "lengthwise extend compare models/rotary --extension logn+rerope:window=128",
    ),
    "extend merge": ("lengthwise extend merge models/none --fit scales --out merged",),
    "extend study": ("lengthwise extend study headscale-small --corpus texts --out runs/pair",),
    "extend report": ("lengthwise extend report runs/pair --out context-extension.html",),
    "language": (
        "lengthwise language prepare texts --out tokens",
        "lengthwise language train texts --out models/none --tokens 1M",
    ),
    "language prepare": ("lengthwise language prepare texts --out tokens",),
    "language train": (
        "lengthwise language train texts --out models/none --tokens 1M",
        "lengthwise language train texts --out models/rotary --encoding rope",
    ),
    "language info": ("lengthwise language info models/none",),
    "theory": ("lengthwise theory absolute --length 64", "lengthwise theory relative --length 64"),
    "theory absolute": ("lengthwise theory absolute --length 64",),
    "theory relative": ("lengthwise theory relative --length 64",),
}
"""Path of a command -> its examples, which fit into 78 columns."""
