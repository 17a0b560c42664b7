"""A provider for the simulated cloud in Python, written against the contract in `wit/` without the SDK. It shows that the
contract is independent of Rust, and is a starting point for authors in other languages.

componentize-py generates `wit_world` from the contract, with a module for each interface. The host calls the classes
`Info` and `Instances`. Each call starts with this module's state as it was when the component was built.
"""

import json
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports import info, instances
from wit_world.imports import call, monotonic_clock, outgoing_handler, poll, streams
from wit_world.imports import pileus_provider_types as types
from wit_world.imports import wasi_http_types as http
from wit_world.imports.pileus_provider_types import NodeReference

SCHEME = "simulated"
MAX_NODES = 64  # Nodes in one call: the host allows a call this many requests in flight
RETRY_AFTER = 5000  # milliseconds
SCHEMA = {
    "type": "object",
    "properties": {"endpoint": {"type": "string", "description": "The base URL of the cloud's API, as in http://simulator:8080"}},
    "required": ["endpoint"],
    "additionalProperties": False,
}
STATES = {"running": types.State.RUNNING, "stopped": types.State.STOPPED}
# The error kind for each status, from the time of `Retry-After` in milliseconds. A status that isn't here is `broken`: this
# provider doesn't understand it.
KINDS = (
    {status: lambda _: types.ErrorKind_Denied() for status in (401, 403, 407)}
    | {status: lambda _: types.ErrorKind_Invalid() for status in (400, 422)}
    | {status: types.ErrorKind_Conflict for status in (409, 412, 423)}
    | {status: types.ErrorKind_Unavailable for status in (408, 425, *range(500, 600))}
    | {429: types.ErrorKind_Throttled}
)


class Info(exports.Info):
    def describe(self) -> info.Description:
        shape = info.CallShape(info.Capability.INSTANCES, largest_batch=MAX_NODES, side_by_side=True, extra=[])
        schema, no_facts = json.dumps(SCHEMA), info.ServiceFacts(0)
        return info.Description("simulated-python", "0.1.0", [SCHEME], schema, [], no_facts, [], [shape], [])

    def configure(self, document: str) -> info.Settings:
        configuration = json.loads(document)
        unknown = sorted(configuration.keys() - {"endpoint"})
        problems = [info.Problem(field, "unknown field, expected `endpoint`") for field in unknown]
        try:
            cloud = endpoint(configuration)
        except ValueError as problem:
            problems.append(info.Problem("endpoint", str(problem)))
        if problems:
            raise Err(problems)
        host = f"[{cloud.hostname}]" if ":" in cloud.hostname else cloud.hostname
        access = info.Endpoint(cloud.scheme == "https", host, cloud.port, "to read the instances of Nodes", None, [])
        pages = {f"{cloud.path}/v1/machines": info.Place_Query("cursor"), f"{cloud.path}/v1/machines/*": None}
        read = info.Effect.READ
        rules = [
            info.Rule(host, "GET", path, None, read, ["reads"], "machines", page, False, [])
            for path, page in pages.items()
        ]
        return info.Settings(
            [access], rules, limits=[], refusals=[], node_labels=[], notices=[], one_at_a_time=[], extra=[]
        )


class Instances(exports.Instances):
    def lookup(self, purpose: instances.Purpose, nodes: list[NodeReference]) -> list[instances.Answer]:
        # One read for each Node is correct for every purpose. All requests are sent before the first response is awaited.
        cloud = endpoint(json.loads(call.configuration()))
        sent = [attempt(node, lambda: send(cloud, node)) for node in nodes]
        deadline = monotonic_clock.subscribe_duration(call.remaining() * 1_000_000)
        return [
            attempt(node, lambda: answer(node, arrival, deadline))
            if isinstance(arrival, http.FutureIncomingResponse)
            else arrival
            for node, arrival in zip(nodes, sent)
        ]


def attempt(node: NodeReference, step):
    """Takes a step for one Node. Every failure is that Node's answer, and doesn't affect the other Nodes."""
    try:
        return step()
    except Err as failure:
        return instances.Answer_Failed(failure.value)
    except Exception as unexpected:
        failure = error(types.ErrorKind_Broken(), node, f"{type(unexpected).__name__}: {unexpected}")
        return instances.Answer_Failed(failure.value)


def send(cloud: SplitResult, node: NodeReference) -> http.FutureIncomingResponse:
    if node.provider_id is not None:
        scheme, _, machine = node.provider_id.partition("://")
        if scheme != SCHEME or not machine:
            raise error(types.ErrorKind_Invalid(), node, f"{node.provider_id!r} is not like {SCHEME}://m-000001")
        path = "/v1/machines/" + quote(machine, safe="")
    else:
        path = "/v1/machines?" + urlencode({"name": node.name})
    request = http.OutgoingRequest(http.Fields())
    request.set_scheme(http.Scheme_Https() if cloud.scheme == "https" else http.Scheme_Http())
    request.set_authority(cloud.netloc)
    request.set_path_with_query(cloud.path + path)
    try:
        return outgoing_handler.handle(request, None)
    except Err as refusal:
        raise no_answer(node, refusal.value)


def answer(node: NodeReference, arrival: http.FutureIncomingResponse, deadline: poll.Pollable) -> instances.Answer:
    with arrival.subscribe() as arrived:
        if 0 not in poll.poll([arrived, deadline]):
            return instances.Answer_Pending(RETRY_AFTER)
    result = arrival.get().value
    if isinstance(result, Err):
        raise no_answer(node, result.value)
    with result.value as response:
        status = response.status()
        if status == 404 and node.provider_id is not None:
            return instances.Answer_Absent()
        if status != 200:
            kind = KINDS.get(status, lambda _: types.ErrorKind_Broken())
            raise error(kind(retry_after(response)), node, f"the cloud answered {status}")
        document = json.loads(body(node, response))
    machines = [document] if node.provider_id is not None else document["machines"]
    if not machines:
        return instances.Answer_Absent()
    if len(machines) > 1:
        raise error(types.ErrorKind_Invalid(), node, f"{len(machines)} machines have its name")
    return found(machines[0])


def found(machine: dict) -> instances.Answer:
    if machine["state"] == "creating":
        return instances.Answer_Pending(RETRY_AFTER)
    instance = types.Instance(
        provider_id=f"{SCHEME}://{machine['id']}",
        instance_type=machine["type"],
        zone=machine["zone"],
        region=machine["region"],
        addresses=[
            types.Address(types.AddressKind[address["kind"].upper().replace("-", "_")], address["value"])
            for address in machine["addresses"]
        ],
        labels=sorted(machine["labels"].items()),
        state=STATES[machine["state"]],
        extra=[],
    )
    return instances.Answer_Found(instance)


def endpoint(configuration: dict) -> SplitResult:
    text = configuration.get("endpoint")
    if not isinstance(text, str):
        raise ValueError("expected a URL as in http://simulator:8080")
    url = urlsplit(text.rstrip("/"))
    if url.scheme not in ("http", "https") or not url.hostname or url.username or url.query or url.fragment:
        raise ValueError(f"{text!r} is not a base URL, expected one as in http://simulator:8080")
    url.port  # raises ValueError if the port is invalid
    return url


def body(node: NodeReference, response: http.IncomingResponse) -> bytes:
    read = bytearray()
    with response.consume() as content, content.stream() as stream:
        while True:
            try:
                read += stream.blocking_read(1 << 16)
            except Err as end:
                if isinstance(end.value, streams.StreamError_Closed):
                    return bytes(read)
                raise error(types.ErrorKind_Unavailable(None), node, "the response is incomplete")


def retry_after(response: http.IncomingResponse) -> int | None:
    with response.headers() as headers:
        seconds = b"".join(headers.get("retry-after"))
    return int(seconds) * 1000 if seconds.isdigit() else None


def no_answer(node: NodeReference, code: http.ErrorCode) -> Err:
    denied = isinstance(code, (http.ErrorCode_HttpRequestDenied, http.ErrorCode_DestinationIpProhibited))
    kind = types.ErrorKind_Denied() if denied else types.ErrorKind_Unavailable(None)
    return error(kind, node, f"no response from the cloud: {type(code).__name__.removeprefix('ErrorCode_')}")


def error(kind: types.ErrorKind, node: NodeReference, cause: str) -> Err:
    return Err(types.Error(kind, f"node {node.name}: {cause}", extra=[]))
