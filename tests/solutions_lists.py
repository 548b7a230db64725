"""Second, naive solutions of sort, lego, dyck, mqar and needle: from the text of a prompt to the text of its target."""

from collections.abc import Callable


def items_of(prompt: str) -> list[str]:
    """The items of the only list in a text."""
    return prompt.split("[ ")[1].split(" ]")[0].split(", ")


def sort_symbols(prompt: str) -> str:
    return f"The sorted list is [ {', '.join(sorted(items_of(prompt)))} ]."


def sort_numbers(prompt: str) -> str:
    by_value = sorted(items_of(prompt), key=lambda item: int(item.replace(" ", "")))
    return f"The sorted list is [ {', '.join(by_value)} ]."


def lego_parts(prompt: str) -> tuple[list[str], str]:
    """The clauses and the variable that is asked for."""
    chain, question = prompt.removeprefix("If ").split(". Then, what is the value of ")
    return chain.split(", "), question.removesuffix("?")


def lego_values(clauses: list[str]) -> dict[str, int]:
    values: dict[str, int] = {}
    for clause in clauses:
        name, right = clause.split(" = ")
        sign, *rest = right.split(" ")
        values[name] = int(sign + "1") * values[rest[0]] if rest else int(sign)
    return values


def lego(prompt: str) -> str:
    clauses, asked = lego_parts(prompt)
    return f"The answer is {lego_values(clauses)[asked]:+d}."


def dyck(prompt: str) -> str:
    """Takes matched neighbours out until only open brackets are left."""
    text = "".join(prompt.removeprefix("Close: ").removesuffix(" [SEP]").split())
    while any(pair in text for pair in ("()", "[]", "{}")):
        for pair in ("()", "[]", "{}"):
            text = text.replace(pair, "")
    return " ".join({"(": ")", "[": "]", "{": "}"}[bracket] for bracket in reversed(text))


def mqar(prompt: str) -> str:
    pairs, asked = prompt.removeprefix("Recall: ").removesuffix(" [SEP]").split(" ? ")
    words = pairs.split()
    return " ".join(words[words.index(key) + 1] for key in asked.split())


def needle(prompt: str) -> str:
    words = prompt.split()
    key = words.index("KEY")
    return " ".join(words[key + 1 : key + 6])


SOLUTIONS: dict[str, Callable[[str], str]] = {
    "sort.symbols": sort_symbols,
    "sort.numbers": sort_numbers,
    "lego": lego,
    "dyck": dyck,
    "mqar": mqar,
    "needle": needle,
}
