"""A provider for the simulated cloud in Python, written against the contract in `wit/` without the SDK. It shows that the
contract is independent of Rust, and is a starting point for authors in other languages. `cloud` sends its requests.

componentize-py generates `wit_world` from the contract, with a module for each interface. The host calls the classes `Info`,
`Instances` and `LoadBalancers`. Each call starts with this module's state as it was when the component was built.
"""

import json
from urllib.parse import quote, urlencode

from cloud import as_error, attempt, base_url, error, items, request, run_all
from componentize_py_types import Err
from wit_world import exports
from wit_world.exports import info, instances
from wit_world.exports import load_balancers as lb
from wit_world.imports import pileus_provider_types as types

MAX_ITEMS = 64  # in one call: each has one request in flight, and the host allows a call this many
RETRY_AFTER = 5000  # milliseconds
POLL_AFTER = 1000  # milliseconds
SCHEMA = {
    "type": "object",
    "properties": {"endpoint": {"type": "string", "description": "The base URL of the cloud's API, as in http://simulator:8080"}},
    "required": ["endpoint"],
    "additionalProperties": False,
}
STATES = {"running": types.State.RUNNING, "stopped": types.State.STOPPED}
BUSY = ("creating", "updating", "deleting")
RETURNED_AS_WRITTEN = ("ports", "sourceRanges", "families", "healthCheckPort", "stickySeconds", "labels")


class Info(exports.Info):
    def describe(self) -> info.Description:
        capabilities = (info.Capability.INSTANCES, info.Capability.LOAD_BALANCERS)
        shapes = [info.CallShape(one, largest_batch=MAX_ITEMS, side_by_side=True, extra=[]) for one in capabilities]
        schema, no_facts = json.dumps(SCHEMA), info.ServiceFacts(0)
        return info.Description("simulated-python", "0.1.0", ["simulated"], schema, [], no_facts, [], shapes, [])

    def configure(self, document: str) -> info.Settings:
        try:
            configuration = json.loads(document)
        except ValueError as problem:
            raise Err([info.Problem("", f"expected JSON: {problem}")])
        if not isinstance(configuration, dict):
            raise Err([info.Problem("", "expected an object")])
        unknown = sorted(configuration.keys() - {"endpoint"})
        problems = [info.Problem(field, "unknown field, expected `endpoint`") for field in unknown]
        try:
            url = base_url(configuration.get("endpoint"))
        except ValueError as problem:
            problems.append(info.Problem("endpoint", str(problem)))
        if problems:
            raise Err(problems)
        host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
        reason = "to read the instances of Nodes, and to change load balancers"
        access = info.Endpoint(url.scheme == "https", host, url.port, reason, None, [])

        def rule(method: str, path: str, page: info.Place | None = None) -> info.Rule:
            effect, limit = (info.Effect.READ, "reads") if method == "GET" else (info.Effect.WRITE, "writes")
            scope = path.partition("/")[0]
            return info.Rule(host, method, f"{url.path}/v1/{path}", None, effect, [limit], scope, page, False, [])

        rules = [
            rule("GET", "machines", info.Place_Query("cursor")),
            rule("GET", "machines/*"),
            rule("GET", "load-balancers", info.Place_Query("cursor")),
            *(rule(method, "load-balancers/*") for method in ("GET", "PUT", "DELETE")),
        ]
        return info.Settings(
            [access], rules, limits=[], refusals=[], node_labels=[], notices=[], one_at_a_time=[], extra=[]
        )


class Instances(exports.Instances):
    def lookup(self, purpose: instances.Purpose, nodes: list[types.NodeReference]) -> list[instances.Answer]:
        # One read for each Node is correct for every purpose.
        late = instances.Answer_Pending(RETRY_AFTER)
        return run_all([attempt(f"node {node.name}", find(node), late, instances.Answer_Failed) for node in nodes])


async def find(node: types.NodeReference) -> instances.Answer:
    if node.provider_id is not None:
        machine_id = id_of(node.provider_id)
        if machine_id is None:
            problem = f"{node.provider_id!r} is not like simulated://m-000001"
            raise error(types.ErrorKind_Invalid(), problem)
        machine = await request("GET", "machines/" + quote(machine_id, safe=""))
        return instances.Answer_Absent() if machine is None else answer(machine)
    machines = await items("machines?" + urlencode({"name": node.name}), "machines")
    if len(machines) > 1:
        raise error(types.ErrorKind_Invalid(), f"{len(machines)} machines have its name")
    return answer(machines[0]) if machines else instances.Answer_Absent()


def answer(machine: dict) -> instances.Answer:
    if machine["state"] == "creating":
        return instances.Answer_Pending(RETRY_AFTER)
    instance = types.Instance(
        provider_id=f"simulated://{machine['id']}",
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


class LoadBalancers(exports.LoadBalancers):
    def change(
        self, cluster: types.Cluster, targets: list[lb.Target], known: list[lb.Service], changes: list[lb.ServiceChange]
    ) -> list[lb.Outcome]:
        def make(change: lb.ServiceChange):
            one, resume = change.action.value, change.resume
            if isinstance(one, lb.Owned):
                name, step = f"load balancer {one.name}", remove(one.name, resume)
            elif isinstance(change.action, lb.Action_Delete):
                name, step = f"service {one.namespace}/{one.name}", remove(one.uid, resume)
            else:
                name, step = f"service {one.namespace}/{one.name}", ensure(cluster, one, targets, resume)
            return attempt(name, step, under_way(resume), lb.Outcome_Failed)

        # Removals come first, because an address may move from one Service to another.
        outcomes, removals = {}, (lb.Action_Delete, lb.Action_RemoveOrphan)
        for are_removals in (True, False):
            turn = [place for place, one in enumerate(changes) if isinstance(one.action, removals) == are_removals]
            outcomes |= zip(turn, run_all([make(changes[place]) for place in turn]))
        return [outcomes[place] for place in range(len(changes))]

    def list_owned(self, cluster: types.Cluster) -> list[lb.Owned]:
        try:
            [found] = run_all([items("load-balancers?limit=1000", "loadBalancers")])
        except Exception as problem:
            raise Err(as_error(problem))
        return [owned(one["name"], one["labels"]) for one in found if is_owned(one["labels"], cluster)]


async def ensure(cluster: types.Cluster, service: lb.Service, targets: list[lb.Target], resume: str | None) -> lb.Outcome:
    path, desired = "load-balancers/" + quote(service.uid, safe=""), spec(cluster, service, targets)
    found = await request("GET", path)
    if found is not None and found["state"] in BUSY:
        return under_way(resume)
    if found is not None and found["state"] == "failed" and resume == "written":
        raise failed(found)
    if found is None or found["state"] == "failed" or not matches(found, desired):
        found = await request("PUT", path, desired)
    if found["state"] == "failed":
        raise failed(found)
    return done(found["addresses"]) if found["state"] == "active" else under_way("written")


async def remove(uid: str, resume: str | None) -> lb.Outcome:
    path = "load-balancers/" + quote(uid, safe="")
    found = await request("GET", path)
    if found is None:
        return done([])
    if found["state"] in BUSY:
        return under_way(resume)
    if found["state"] == "failed" and resume == "deleted":
        raise failed(found)
    return done([]) if await request("DELETE", path) is None else under_way("deleted")


def spec(cluster: types.Cluster, service: lb.Service, targets: list[lb.Target]) -> dict:
    """The load balancer that a Service asks for, as the cloud writes it."""
    selected = service.targets
    rows = targets if isinstance(selected, lb.Selection_All) else [targets[row] for row in selected.value]
    fields = {
        "ports": [
            present({"protocol": port.protocol.name.lower(), "port": port.port, "nodePort": port.node_port})
            for port in service.ports
        ],
        "machines": sorted(machine for row in rows if (machine := id_of(row.provider_id)) is not None),
        "sourceRanges": service.source_ranges,
        "families": [family.name.lower() for family in service.families],
        "address": service.requested_ip,
        "healthCheckPort": service.policy.value if isinstance(service.policy, lb.TrafficPolicy_Local) else None,
        "stickySeconds": service.affinity.value // 1000 if isinstance(service.affinity, lb.Affinity_ClientIp) else None,
        "labels": present(
            {
                "pileus-cluster": cluster.uid,
                "pileus-service": service.uid,
                "pileus-service-namespace": service.namespace,
                "pileus-service-name": service.name,
            }
        ),
    }
    return present(fields)


def matches(found: dict, desired: dict) -> bool:
    is_same = all(found.get(field) == desired.get(field) for field in RETURNED_AS_WRITTEN)
    has_address = "address" not in desired or desired["address"] in found["addresses"]
    return is_same and has_address and sorted(found["machines"]) == desired["machines"]


def present(fields: dict) -> dict:
    return {field: value for field, value in fields.items() if value is not None}


def is_owned(labels: dict, cluster: types.Cluster) -> bool:
    return "pileus-service" in labels and labels.get("pileus-cluster") in (None, cluster.uid)


def owned(name: str, labels: dict) -> lb.Owned:
    service = (labels.get("pileus-service-namespace"), labels.get("pileus-service-name"))
    has_names = None not in service
    return lb.Owned(labels.get("pileus-cluster"), labels["pileus-service"], service if has_names else None, name, extra=[])


def done(addresses: list[str]) -> lb.Outcome:
    status = [lb.Ingress(lb.IngressPoint_Ip(address), None, ports=[]) for address in addresses]
    return lb.Outcome_Done(lb.Done(status, notices=[], annotations=[], extra=[]))


def under_way(resume: str | None) -> lb.Outcome:
    return lb.Outcome_InProgress(lb.UnderWay(POLL_AFTER, resume, None, notices=[], annotations=[], extra=[]))


def failed(found: dict) -> Err:
    return error(types.ErrorKind_Unavailable(None), f"the cloud failed: {found['error']}")


def id_of(provider_id: str) -> str | None:
    scheme, _, machine = provider_id.partition("://")
    return machine if scheme == "simulated" and machine and "/" not in machine else None
