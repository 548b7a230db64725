"""A model behind a server that speaks OpenAI's protocol, as those of llama.cpp and vLLM do: /v1/completions and
/v1/chat/completions, one request for each question, several at a time."""

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lengthwise.door import ANY_OBJECT, List, Object, Text, parse_json, visible
from lengthwise.errors import RunError, UserError
from lengthwise.foreign_models.questions import END_OF_LINE, Questions
from lengthwise.foreign_models.written import MARGIN, Written

MOST_BYTES = 2**26
"""Of an answer over HTTP."""
PATIENCE = 600.0
"""Seconds that a server may take for an answer."""
SPARE = 2 * MARGIN
"""Tokens beyond the letters of a target, which are more than its tokens."""

_TEXT = Text(most=MOST_BYTES, nullable=True)
_REASON = Text(nullable=True)
MODELS = Object({"data": List(Object({"id": Text(most=1000)}), most=100_000)})
COMPLETION = Object({"choices": List(Object({"text": _TEXT}, {"finish_reason": _REASON}), most=100)})
CHAT = Object({"choices": List(Object({"message": Object({"content": _TEXT})}, {"finish_reason": _REASON}), most=100)})


class Server:
    """Writes through HTTP. What the server does not say (parameters, tokens) is not known."""

    def __init__(self, url: str, model: str = "", label: str = "", batch: int = 8, patience: float = PATIENCE) -> None:
        """`model`: which of the server's models; by default the first. `batch`: requests at a time."""
        self.base, self.batch, self.patience = base_of(url), batch, patience
        host = urllib.parse.urlsplit(self.base).hostname or ""
        # A proxy is not asked for this machine.
        here = host in ("localhost", "::1") or host.startswith("127.")
        self._opener = urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if here else []))
        known = [each["id"] for each in self._ask("/v1/models", None, MODELS)["data"]]
        if not known and not model:
            raise UserError(f"{self.base} has no model; start it with one, or name it with --server-model")
        if model and known and model not in known:
            few = ", ".join(visible(each, 60) for each in known[:10])
            raise UserError(f"{self.base} has no model {visible(model, 100)!r}; it has {few}")
        self.name = model or known[0]
        self.label = label or visible(self.name.rstrip("/").rpartition("/")[2] or self.name, 100)
        self.identity = {"server": self.base, "model": self.name}
        self.about = {"architecture": "server", "model": self.name}
        self.parameters, self.device = 0, "server"

    def refuse(self, questions: Questions) -> None:
        """Asks the longest question first: what is too long for the server is found before anything is written."""
        self._write_one(questions, len(questions) - 1)

    def write(self, questions: Questions, indices: Sequence[int], note: Callable[[str], None]) -> list[Written]:
        with ThreadPoolExecutor(self.batch) as pool:
            return list(pool.map(lambda index: self._write_one(questions, index), indices))

    def _write_one(self, questions: Questions, index: int) -> Written:
        asked: dict[str, Any] = {
            "model": self.name,
            "max_tokens": len(questions.texts[index][1]) + SPARE,
            "temperature": 0,
            "seed": 0,
        }
        length = int(questions.length_E[index])
        if questions.asking.chat:
            asked |= {"messages": questions.messages(index), "chat_template_kwargs": {"enable_thinking": False}}
            choice = self._choice(self._ask("/v1/chat/completions", asked, CHAT, length))
            text = choice["message"]["content"]
        else:
            asked |= {"prompt": questions.plain(index), "stop": [END_OF_LINE]}
            choice = self._choice(self._ask("/v1/completions", asked, COMPLETION, length))
            text = choice["text"]
        return Written(text or "", choice.get("finish_reason") != "length")

    def _choice(self, answer: dict[str, Any]) -> dict[str, Any]:
        if not answer["choices"]:
            raise RunError(f"{self.base} answered without a choice; is it a server of OpenAI's protocol?")
        return answer["choices"][0]

    def _ask(self, path: str, asked: dict[str, Any] | None, schema: Object, length: int = 0) -> dict[str, Any]:
        """An answer that fits the schema. `asked`: what is sent; None to only look."""
        data = None if asked is None else json.dumps(asked).encode()
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"})
        where = self.base + path
        try:
            with self._opener.open(request, timeout=self.patience) as answer:
                content = answer.read(MOST_BYTES + 1)
        except urllib.error.HTTPError as error:
            at = f" at length {length}" if length else ""
            raise RunError(f"{where} refused{at} with status {error.code}: {_said(error)}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error or type(error).__name__
            raise RunError(
                f"no answer from {where} ({visible(str(reason), 200)}); is the server running? The same command resumes"
            ) from None
        if len(content) > MOST_BYTES:
            raise RunError(f"{where} answered with more than {MOST_BYTES:,} bytes")
        found = parse_json(content.decode("utf-8", errors="replace"), where)
        return schema.checked(ANY_OBJECT.checked(found, where), where)


def _said(error: urllib.error.HTTPError) -> str:
    """What a server says of an error: `{"error": {"message": ...}}`, or any text."""
    text = ""
    try:
        text = error.read(10_000).decode("utf-8", errors="replace")
        found = json.loads(text)["error"]
        text = found["message"] if isinstance(found, dict) else str(found)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return visible(" ".join(str(text).split()) or error.reason, 300)


def is_server(model: str) -> bool:
    return model.startswith(("http://", "https://"))


def base_of(url: str) -> str:
    """Without the path of the protocol, which people may add: http://HOST:PORT."""
    try:
        parts = urllib.parse.urlsplit(url)
        _ = parts.port  # which may be no number
    except ValueError:
        raise UserError(
            f"{visible(url, 100)!r} is no address of a server; it must look like http://localhost:8080"
        ) from None
    if not parts.hostname or parts.query or parts.fragment or parts.username:
        raise UserError(f"{visible(url, 100)!r} is no address of a server; it must look like http://localhost:8080")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}"
