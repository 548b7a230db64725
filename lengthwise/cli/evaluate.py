"""The commands `evaluate` and `lm-eval`: parses and calls; imports nothing heavy before a command runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from lengthwise.cli.options import Dtype
from lengthwise.cli.paths import named_path
from lengthwise.cli.printing import messages, say, warn

if TYPE_CHECKING:
    from lengthwise.runtime import Listener


Lengths = Annotated[str, typer.Option(help="E.g. 2-40 or 5,10,20-24; by default all that the task has.")]
Count = Annotated[int, typer.Option(min=1, max=100_000, help="Questions of each length.")]
TaskSettings = Annotated[
    list[str],
    typer.Option(
        "--set", metavar="NAME=VALUE", help="A setting of the task or its data: symbols=20, data.scratchpad=full."
    ),
]


def evaluate_command(
    model: Annotated[str, typer.Argument(help="The folder of a Hugging Face model, or http://HOST:PORT of a server.")],
    tasks: Annotated[list[str], typer.Option("--task", help="A task, e.g. copy.repeat; may be repeated.")],
    out: Annotated[
        Path | None,
        typer.Option(parser=named_path, metavar="PATH", help="Folder for results; by default runs/evaluation."),
    ] = None,
    lengths: Lengths = "",
    trained: Annotated[
        str,
        typer.Option(
            help="Lengths that the model was trained on, e.g. 2-6; longer ones are unseen. By default the task's."
        ),
    ] = "",
    count: Count = 100,
    shots: Annotated[int, typer.Option(min=0, max=1000, help="Solved examples before each question.")] = 0,
    chat: Annotated[bool, typer.Option("--chat", help="Ask in the model's chat template.")] = False,
    instruction: Annotated[str, typer.Option(help="A text before everything else.")] = "",
    seed: Annotated[int, typer.Option(min=0, help="Of the choice of few-shot examples.")] = 0,
    name: Annotated[str, typer.Option(help="What tables call the model; by default as its folder is called.")] = "",
    tokenizer: Annotated[Path | None, typer.Option(help="A folder with another tokenizer.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
    dtype: Annotated[Dtype, typer.Option(help="Of the weights; auto: as they were saved.")] = Dtype.auto,
    batch: Annotated[
        int, typer.Option(min=0, max=4096, help="Questions at a time; 0: 32, of a server 8 requests.")
    ] = 0,
    beyond_context: Annotated[
        bool, typer.Option("--beyond-context", help="Try sequences longer than the model's config allows.")
    ] = False,
    server_model: Annotated[str, typer.Option(help="Which of a server's models; by default its first.")] = "",
    settings: TaskSettings = [],  # noqa: B006
) -> None:
    """Ask any model a task's questions, by length: exact match of what it writes by greedy decoding.

    The rows are those of runs: `show`, `report` and `compare` take the folder. The same command resumes.
    """
    from lengthwise import configuration
    from lengthwise.data.lengths import read_lengths
    from lengthwise.foreign_models.evaluating import Evaluation, prepare_questions, refuse_one_sided
    from lengthwise.foreign_models.opening import open_writer
    from lengthwise.foreign_models.questions import Asking
    from lengthwise.records.directory import StudyDirectory

    folder = Path("runs/evaluation") if out is None else out
    asking, chosen = Asking(shots, chat, instruction, seed), read_lengths(lengths)
    # All tasks are looked at before the model is loaded.
    named = [configuration.override({"name": task}, settings) for task in dict.fromkeys(tasks)]
    asked = [prepare_questions(task, chosen, count, asking, trained) for task in named]
    for questions in asked:
        refuse_one_sided(questions)
    writer = open_writer(model, tokenizer, name, device, dtype.value, batch, beyond_context, server_model)
    done = [Evaluation(writer, questions, StudyDirectory(folder)) for questions in asked]
    finished = all(each.is_finished for each in done)
    try:
        for each in done:
            with _watched(f"{each.title}/{each.label}") as listener:
                each.run(listener)
    except KeyboardInterrupt:
        messages.print("Stopped. The same command resumes.")
        raise typer.Exit(130) from None
    told = "Nothing left to do" if finished else "Finished"
    say(f"{told}: {folder}")
    if not finished:
        following = f"Next: lengthwise show {folder}, or lengthwise report {folder} --out report.html"
        messages.print(following, highlight=False, markup=False, soft_wrap=True, style="dim")


@contextmanager
def _watched(title: str) -> "Iterator[Listener]":
    """A bar of questions; a plain line where nobody watches."""
    from lengthwise.runtime import Listener

    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=messages,
        transient=True,
        disable=not messages.is_terminal,
    )
    if not messages.is_terminal:
        messages.print(title, markup=False, highlight=False)
    with bars:
        bar = bars.add_task(title.replace("[", "\\["), total=None)
        yield Listener(
            step=lambda reached, total: bars.update(bar, completed=reached, total=total),
            note=warn,
        )


def lm_eval_command(
    to: Annotated[Path, typer.Option(parser=named_path, metavar="DIR", help="A new folder, for `--include_path`.")],
    tasks: Annotated[
        list[str], typer.Option("--task", help="May be repeated; by default the 17 of the published battery.")
    ] = [],  # noqa: B006
    lengths: Lengths = "",
    count: Count = 100,
    shots: Annotated[int, typer.Option(min=0, max=1000, help="Solved examples before each question.")] = 0,
    instruction: Annotated[str, typer.Option(help="A text before everything else.")] = "",
    seed: Annotated[int, typer.Option(min=0, help="Of the choice of few-shot examples, and of keys.")] = 0,
    passkey: Annotated[
        Path | None, typer.Option(metavar="MODEL", help="Also the passkey test, for the tokenizer of this folder.")
    ] = None,
    contexts: Annotated[str, typer.Option("--context", help="Of the passkey test, in tokens: 512,1024.")] = "512,1024",
    depth_count: Annotated[int, typer.Option("--depths", min=1, max=100, help="Of the passkey test.")] = 5,
    trials: Annotated[int, typer.Option(min=1, max=1000, help="Keys for each context and depth.")] = 10,
    longbench: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Also LongBench, from its own .jsonl files in this folder.")
    ] = None,
    settings: TaskSettings = [],  # noqa: B006
) -> None:
    """Write tasks for lm-evaluation-harness: `lm_eval --include_path DIR --tasks lengthwise`."""
    from lengthwise import configuration
    from lengthwise.data.lengths import read_lengths
    from lengthwise.foreign_models.evaluating import prepare_questions
    from lengthwise.foreign_models.lm_eval_tasks import passkey_rows, write_lm_eval
    from lengthwise.foreign_models.longbench import longbench_tasks
    from lengthwise.foreign_models.questions import Asking
    from lengthwise.listing import battery

    chosen, asking = read_lengths(lengths), Asking(shots, instruction=instruction, seed=seed)
    named = [configuration.override({"name": task}, settings) for task in dict.fromkeys(tasks)]
    if not named and passkey is None and longbench is None:
        named = [configuration.override({"name": task}, settings) for task in battery()]
    asked = [prepare_questions(task, chosen, count, asking) for task in named]
    keys: list[dict[str, Any]] = []
    if passkey is not None:
        from lengthwise.context_extension.extending import read_lengths as read_contexts
        from lengthwise.context_extension.foreign_tokenizer import ForeignTokenizer
        from lengthwise.context_extension.passkey import KeyDocuments, depths

        tokenizer = ForeignTokenizer.load(passkey)
        documents = KeyDocuments(tokenizer, tokenizer.begins)
        keys = list(passkey_rows(documents, read_contexts(contexts), depths(depth_count), trials, seed))
    others = longbench_tasks(longbench) if longbench is not None else {}
    names = write_lm_eval(to, asked, keys, others)
    say(f"Wrote {to}: {', '.join(names)}")
    following = f"Next: lm_eval --model hf --model_args pretrained=MODEL --include_path {to} --tasks lengthwise"
    messages.print(following, highlight=False, markup=False, soft_wrap=True, style="dim")
