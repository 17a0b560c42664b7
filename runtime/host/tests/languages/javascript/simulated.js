/**
 * A provider for the simulated cloud in JavaScript, written against the contract in `wit/` without the SDK. It shows that
 * the contract is independent of Rust, and is a starting point for authors in other languages.
 *
 * componentize-js makes a component of this module and a JavaScript engine. The host calls the exported objects. Each call
 * starts with this module's state as it was when the component was built. An enum of the contract is its name, a variant is
 * `{ tag, val }`, a missing option is `undefined`, and what a function throws is the error of its `result`.
 */

import { configuration, remaining } from "pileus:provider/call@0.2.0";

const MAX_ITEMS = 64; // in one call: each has one request in flight, and the host allows a call this many
const RETRY_AFTER = 5000n; // milliseconds
const POLL_AFTER = 1000n; // milliseconds
const SCHEMA = {
  type: "object",
  properties: { endpoint: { type: "string", description: "The base URL of the cloud's API, as in http://simulator:8080" } },
  required: ["endpoint"],
  additionalProperties: false,
};
// A status that isn't here is `broken`: this provider doesn't understand it.
const KINDS = {
  ...{ 400: "invalid", 422: "invalid", 401: "denied", 403: "denied", 407: "denied", 408: "unavailable", 425: "unavailable" },
  ...{ 409: "conflict", 412: "conflict", 423: "conflict", 429: "throttled" },
};
const LATE = failure("unavailable", "the cloud did not answer in time");
const BUSY = ["creating", "updating", "deleting"];
const RETURNED_AS_WRITTEN = ["ports", "sourceRanges", "families", "healthCheckPort", "stickySeconds", "labels"];
const STATES = ["running", "stopped"];
const ADDRESS_KINDS = ["hostname", "internal-ip", "external-ip", "internal-dns", "external-dns"];

export const info = {
  describe() {
    const shape = (capability) => ({ capability, largestBatch: MAX_ITEMS, sideBySide: true, extra: [] });
    return {
      name: "simulated-javascript",
      version: "0.1.0",
      providerIdSchemes: ["simulated"],
      configurationSchema: JSON.stringify(SCHEMA),
      serviceAnnotations: [],
      serviceFacts: {},
      nodeLabels: [],
      callShapes: [shape("instances"), shape("load-balancers")],
      extra: [],
    };
  },

  configure(document) {
    const { endpoint, ...unknown } = parse(document);
    const message = "unknown field, expected `endpoint`";
    const problems = Object.keys(unknown).sort().map((path) => ({ path, message }));
    const base = baseUrl(endpoint);
    if (!base) problems.push({ path: "endpoint", message: "expected a base URL as in http://simulator:8080" });
    if (problems.length > 0) throw problems;
    const rule = (method, path, pageParameter) => ({
      host: base.hostname,
      method,
      path: `${base.pathname}v1/${path}`,
      effect: method === "GET" ? "read" : "write",
      limits: [method === "GET" ? "reads" : "writes"],
      cacheScope: path.split("/")[0],
      page: pageParameter && { tag: "query", val: pageParameter },
      foldCase: false,
      extra: [],
    });
    const access = {
      tls: base.protocol === "https:",
      host: base.hostname,
      port: base.port ? Number(base.port) : undefined,
      reason: "to read the instances of Nodes, and to change load balancers",
      extra: [],
    };
    const rules = [
      rule("GET", "machines", "cursor"),
      rule("GET", "machines/*"),
      rule("GET", "load-balancers", "cursor"),
      ...["GET", "PUT", "DELETE"].map((method) => rule(method, "load-balancers/*")),
    ];
    return { endpoints: [access], rules, limits: [], refusals: [], nodeLabels: [], notices: [], oneAtATime: [], extra: [] };
  },
};

/** The fields of a configuration. What is thrown otherwise is the error of `configure`: a list of problems. */
function parse(document) {
  let configuration;
  try {
    configuration = JSON.parse(document);
  } catch (error) {
    throw [{ path: "", message: `expected JSON: ${error.message}` }];
  }
  if (!(configuration instanceof Object)) throw [{ path: "", message: "expected an object" }];
  return configuration;
}

export const instances = {
  // One read for each Node is correct for every purpose.
  async lookup(_purpose, nodes) {
    const late = { tag: "pending", val: RETRY_AFTER };
    return Promise.all(nodes.map((node) => attempt(`node ${node.name}`, () => find(node), late)));
  },
};

async function find({ name, providerId }) {
  if (providerId !== undefined) {
    const id = machineId(providerId);
    if (!id) throw failure("invalid", `${JSON.stringify(providerId)} is not like simulated://m-000001`);
    return answer(await request("GET", `machines/${id}`));
  }
  const { machines } = await list(`machines?name=${encodeURIComponent(name)}`);
  if (machines.length > 1) throw failure("invalid", `${machines.length} machines have its name`);
  return answer(machines[0]);
}

function answer(machine) {
  if (machine === undefined) return { tag: "absent" };
  const { id, state, type, zone, region, addresses, labels } = machine;
  if (state === "creating") return { tag: "pending", val: RETRY_AFTER };
  // A name that the contract doesn't have would end the whole call. This ends the lookup of this Node only.
  const isKnown = STATES.includes(state) && addresses.every(({ kind }) => ADDRESS_KINDS.includes(kind));
  if (!isKnown) throw failure("broken", `unknown state or address kind: ${JSON.stringify({ state, addresses })}`);
  const facts = { instanceType: type, zone, region, addresses, labels: Object.entries(labels), state };
  return { tag: "found", val: { providerId: `simulated://${id}`, ...facts, extra: [] } };
}

export const loadBalancers = {
  async change(cluster, targets, _known, changes) {
    const outcomes = new Map();
    const make = async (change) => {
      const { action: { tag, val }, resume } = change;
      const name = tag === "remove-orphan" ? `load balancer ${val.name}` : `service ${val.namespace}/${val.name}`;
      const step = () => (isRemoval(change) ? remove(val.uid ?? val.name, resume) : ensure(cluster, val, targets, resume));
      outcomes.set(change, await attempt(name, step, underWay(resume)));
    };
    // Removals come first, because an address may move from one Service to another.
    await Promise.all(changes.filter(isRemoval).map(make));
    await Promise.all(changes.filter((change) => !isRemoval(change)).map(make));
    return changes.map((change) => outcomes.get(change));
  },

  async listOwned(cluster) {
    try {
      return await listOwned(cluster);
    } catch (error) {
      throw asFailure(error);
    }
  },
};

async function listOwned(cluster) {
  const owned = [];
  for (let cursor = ""; cursor !== undefined; ) {
    const page = await list(`load-balancers?limit=1000${cursor && `&cursor=${cursor}`}`);
    for (const { name, labels } of page.loadBalancers) {
      const { "pileus-cluster": clusterUid, "pileus-service": serviceUid } = labels;
      const service = [labels["pileus-service-namespace"], labels["pileus-service-name"]];
      if (serviceUid === undefined || (clusterUid !== undefined && clusterUid !== cluster.uid)) continue;
      owned.push({ clusterUid, serviceUid, service: service.includes(undefined) ? undefined : service, name, extra: [] });
    }
    cursor = page.next && encodeURIComponent(page.next);
  }
  return owned;
}

const isRemoval = ({ action }) => action.tag === "delete" || action.tag === "remove-orphan";
const done = (status) => ({ tag: "done", val: { status, notices: [], annotations: [], extra: [] } });
const underWay = (resume) => {
  return { tag: "in-progress", val: { after: POLL_AFTER, resume, notices: [], annotations: [], extra: [] } };
};

async function ensure(cluster, service, targets, resume) {
  const [path, desired] = [`load-balancers/${encodeURIComponent(service.uid)}`, spec(cluster, service, targets)];
  let found = await request("GET", path);
  if (BUSY.includes(found?.state)) return underWay(resume);
  if (found?.state === "failed" && resume === "written") throw failed(found);
  if (found?.state !== "active" || !matches(found, desired)) found = await request("PUT", path, desired);
  if (found.state === "failed") throw failed(found);
  if (found.state !== "active") return underWay("written");
  return done(found.addresses.map((address) => ({ point: { tag: "ip", val: address }, ports: [] })));
}

async function remove(uid, resume) {
  const path = `load-balancers/${encodeURIComponent(uid)}`;
  const found = await request("GET", path);
  if (found === undefined) return done([]);
  if (BUSY.includes(found.state)) return underWay(resume);
  if (found.state === "failed" && resume === "deleted") throw failed(found);
  return (await request("DELETE", path)) === undefined ? done([]) : underWay("deleted");
}

/** The load balancer that a Service asks for, as the cloud writes it. */
function spec(cluster, { namespace, name, uid, policy, affinity, ...service }, targets) {
  const selected = service.targets.tag === "all" ? targets : [...service.targets.val].map((row) => targets[row]);
  return {
    ports: service.ports.map(({ protocol, port, nodePort }) => ({ protocol, port, nodePort })),
    machines: selected.flatMap(({ providerId }) => machineId(providerId) ?? []).sort(),
    sourceRanges: service.sourceRanges,
    families: service.families,
    address: service.requestedIp,
    healthCheckPort: policy.tag === "local" ? policy.val : undefined,
    stickySeconds: affinity.tag === "client-ip" ? Number(affinity.val / 1000n) : undefined,
    labels: {
      "pileus-cluster": cluster.uid,
      "pileus-service": uid,
      "pileus-service-namespace": namespace,
      "pileus-service-name": name,
    },
  };
}

function matches(found, desired) {
  const isSame = RETURNED_AS_WRITTEN.every((field) => canonical(found[field]) === canonical(desired[field]));
  const hasAddress = desired.address === undefined || found.addresses.includes(desired.address);
  return isSame && hasAddress && canonical([...found.machines].sort()) === canonical(desired.machines);
}

/** JSON with sorted keys and without missing fields. */
function canonical(value) {
  const isObject = (part) => part instanceof Object && !Array.isArray(part);
  return JSON.stringify(value, (_, part) => (isObject(part) ? Object.fromEntries(Object.entries(part).sort()) : part));
}

/** Takes a step for one Node or Service. Every failure is its outcome, and doesn't affect the others. */
async function attempt(name, step, late) {
  try {
    return await step();
  } catch (error) {
    if (error === LATE) return late;
    const known = asFailure(error);
    return { tag: "failed", val: { ...known, message: `${name}: ${known.message}` } };
  }
}

/**
 * Sends a request, and returns the document of the response: undefined after 204 and 404. `fetch` sends `wasi:http` requests.
 * It doesn't tell why a request had no response, but the host tells the operator.
 */
async function request(method, path, body) {
  const url = `${baseUrl(JSON.parse(configuration()).endpoint)}v1/${path}`;
  const content = body && { headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const exchange = async () => {
    const response = await fetch(url, { method, ...content });
    return [response, await response.text()];
  };
  const [response, text] = await Promise.race([exchange(), softDeadline()]).catch((error) => {
    throw remaining() === 0n ? LATE : failure("unavailable", `no response from the cloud: ${error.message}`);
  });
  if (response.status === 404 || response.status === 204) return undefined;
  if (response.ok) return JSON.parse(text);
  const kind = KINDS[response.status] ?? (response.status >= 500 ? "unavailable" : "broken");
  const seconds = response.headers.get("retry-after") ?? "";
  const retryAfter = /^\d+$/.test(seconds) ? BigInt(seconds) * 1000n : undefined;
  throw failure(kind, `the cloud answered ${response.status}: ${text.slice(0, 200)}`, retryAfter);
}

/** Rejects at the soft deadline of the call. */
function softDeadline() {
  return new Promise((_, reject) => setTimeout(reject, Number(remaining())));
}

/** A read of a list, which always exists. */
async function list(path) {
  const found = await request("GET", path);
  if (found === undefined) throw failure("broken", "the cloud has no such list");
  return found;
}

/** The machine's ID in a provider ID, as a part of a URL. */
function machineId(providerId) {
  const [, id] = /^simulated:\/\/([^/]+)$/.exec(providerId) ?? [];
  return id && encodeURIComponent(id);
}

/** The URL with a slash at its end. Undefined if it isn't a base URL. */
function baseUrl(text) {
  try {
    const url = new URL(text);
    if (!["http:", "https:"].includes(url.protocol) || url.username || url.search || url.hash) return undefined;
    url.pathname = url.pathname.replace(/\/*$/, "/");
    return url;
  } catch {
    return undefined;
  }
}

/** An exception as an error of the contract. An `Error` would be taken for one and has none of its fields. */
function asFailure(error) {
  return error.kind ? error : failure("broken", String(error));
}

function failed({ error }) {
  return failure("unavailable", `the cloud failed: ${error}`);
}

function failure(tag, message, retryAfter) {
  return { kind: { tag, val: retryAfter }, message, extra: [] };
}
