"""Requests to the cloud through `wasi:http`, and what its responses mean.

Functions that wait for a response are coroutines. `run_all` runs many of them side by side, until the soft deadline of the call.
"""

import json
from types import coroutine
from urllib.parse import SplitResult, quote, urlsplit

from componentize_py_types import Err
from wit_world.imports import call, monotonic_clock, outgoing_handler, poll
from wit_world.imports import pileus_provider_types as types
from wit_world.imports import wasi_http_types as http
from wit_world.imports.streams import InputStream, StreamError_Closed

# The error kind for each status, from the time of `Retry-After` in milliseconds. A status that isn't here is `broken`: this
# provider doesn't understand it.
KINDS = (
    {status: lambda _: types.ErrorKind_Denied() for status in (401, 403, 407)}
    | {status: lambda _: types.ErrorKind_Invalid() for status in (400, 422)}
    | {status: types.ErrorKind_Conflict for status in (409, 412, 423)}
    | {status: types.ErrorKind_Unavailable for status in (408, 425, *range(500, 600))}
    | {429: types.ErrorKind_Throttled}
)


class Late(Exception):
    """The soft deadline of the call came before the response."""


def base_url(text: object) -> SplitResult:
    if not isinstance(text, str):
        raise ValueError("expected a URL as in http://simulator:8080")
    url = urlsplit(text.rstrip("/"))
    if url.scheme not in ("http", "https") or not url.hostname or url.username or url.query or url.fragment:
        raise ValueError(f"{text!r} is not a base URL, expected one as in http://simulator:8080")
    url.port  # raises ValueError if the port is invalid
    return url


def run_all(coroutines: list) -> list:
    """Runs coroutines side by side, and returns their results. Those that wait at the soft deadline get `Late`."""
    results, waiting = [None] * len(coroutines), {}

    def resume(index: int, step, *value) -> None:
        waiting.pop(index, None)
        try:
            waiting[index] = step(*value)
        except StopIteration as end:
            results[index] = end.value

    for index, one in enumerate(coroutines):
        resume(index, one.send, None)
    with monotonic_clock.subscribe_duration(call.remaining() * 1_000_000) as deadline:
        while waiting:
            indexes = list(waiting)
            ready = set(poll.poll([*waiting.values(), deadline]))
            for place, index in enumerate(indexes):
                if place in ready:
                    resume(index, coroutines[index].send, None)
                elif len(indexes) in ready:
                    resume(index, coroutines[index].throw, Late())
    return results


@coroutine
def wait(resource):
    """Lets other coroutines run until this future or stream is ready."""
    with resource.subscribe() as ready:
        yield ready


async def request(method: str, path: str, body: dict | None = None) -> dict | None:
    """Sends a request, and returns the document of the response: None after 204 and 404."""
    url = base_url(json.loads(call.configuration())["endpoint"])
    content = b"" if body is None else json.dumps(body).encode()
    headers = [("content-type", b"application/json"), ("content-length", str(len(content)).encode())]
    message = http.OutgoingRequest(http.Fields.from_list(headers if content else []))
    message.set_method({"GET": http.Method_Get, "PUT": http.Method_Put, "DELETE": http.Method_Delete}[method]())
    message.set_scheme(http.Scheme_Https() if url.scheme == "https" else http.Scheme_Http())
    message.set_authority(url.netloc)
    message.set_path_with_query(f"{url.path}/v1/{path}")
    upload = message.body() if content else None
    try:
        arrival = outgoing_handler.handle(message, None)
    except Err as refusal:
        raise no_response(refusal.value)
    if upload is not None:
        await write(upload, content)
    await wait(arrival)
    result = arrival.get().value
    if isinstance(result, Err):
        raise no_response(result.value)
    with result.value as response:
        status = response.status()
        with response.headers() as fields:
            seconds = b"".join(fields.get("retry-after"))
        with response.consume() as incoming, incoming.stream() as stream:
            text = await read(stream)
    if status in (204, 404):
        return None
    if 200 <= status < 300:
        return json.loads(text)
    kind = KINDS.get(status, lambda _: types.ErrorKind_Broken())
    raise error(
        kind(int(seconds) * 1000 if seconds.isdigit() else None),
        f"the cloud answered {status}: {text[:200].decode(errors='replace')}",
    )


async def items(path: str, field: str) -> list[dict]:
    """Reads a list to its end."""
    found, cursor = [], ""
    while True:
        page = await request("GET", path + cursor)
        found += page[field]
        if "next" not in page:
            return found
        cursor = "&cursor=" + quote(page["next"], safe="")


async def attempt(name: str, step, late, failed):
    """Takes a step for one Node or Service. Every failure is its outcome, and doesn't affect the others."""
    try:
        return await step
    except Late:
        return late
    except Exception as problem:
        known = as_error(problem)
        return failed(types.Error(known.kind, f"{name}: {known.message}", known.extra))


def as_error(problem: Exception) -> types.Error:
    if isinstance(problem, Err) and isinstance(problem.value, types.Error):
        return problem.value
    if isinstance(problem, Late):
        return types.Error(types.ErrorKind_Unavailable(None), "the cloud did not answer in time", extra=[])
    return types.Error(types.ErrorKind_Broken(), f"{type(problem).__name__}: {problem}", extra=[])


async def write(body: http.OutgoingBody, content: bytes) -> None:
    try:
        with body.write() as stream:
            while content:
                await wait(stream)
                size = stream.check_write()
                stream.write(content[:size])
                content = content[size:]
        http.OutgoingBody.finish(body, None)
    except Err:
        pass  # the response tells why


async def read(stream: InputStream) -> bytes:
    content = bytearray()
    while True:
        await wait(stream)
        try:
            content += stream.read(1 << 16)
        except Err as end:
            if isinstance(end.value, StreamError_Closed):
                return bytes(content)
            raise error(types.ErrorKind_Unavailable(None), "the response is incomplete")


def no_response(code: http.ErrorCode) -> Exception:
    if isinstance(code, http.ErrorCode_HttpResponseTimeout):
        return Late()
    is_denied = isinstance(code, (http.ErrorCode_HttpRequestDenied, http.ErrorCode_DestinationIpProhibited))
    kind = types.ErrorKind_Denied() if is_denied else types.ErrorKind_Unavailable(None)
    return error(kind, f"no response from the cloud: {type(code).__name__.removeprefix('ErrorCode_')}")


def error(kind: types.ErrorKind, message: str) -> Err:
    return Err(types.Error(kind, message, extra=[]))
