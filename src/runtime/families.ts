/** A metric family: series with the same name and different attributes. */
export interface Family {
  readonly type: "counter" | "gauge" | "histogram"
  /** In UCUM. */
  readonly unit: string
  readonly description: string
  /** Attribute names in OpenTelemetry. */
  readonly attributes: ReadonlyArray<string>
  readonly bounds?: ReadonlyArray<number>
}

/** Bucket bounds, from half a millisecond to ten seconds. */
const requestSeconds = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]

/** Bucket bounds, from 10 µs, a seal, to 2.5 s, a seal that waits for the database. */
const cryptoSeconds = [0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.005, 0.025, 0.1, 0.5, 2.5]

const histogram = (
  description: string,
  attributes: ReadonlyArray<string>,
  bounds: ReadonlyArray<number> = requestSeconds,
  unit = "s"
): Family => ({ type: "histogram", unit, description, attributes, bounds })

const counter = (unit: string, description: string, attributes: ReadonlyArray<string>): Family => ({
  type: "counter",
  unit,
  description,
  attributes
})

const gauge = (unit: string, description: string, attributes: ReadonlyArray<string> = []): Family => ({
  type: "gauge",
  unit,
  description,
  attributes
})

/** Every metric of the service, by its OpenTelemetry name. No attribute names a tenant, provider key or path value. */
export const families = {
  "http.server.request.duration": histogram("From the head of a request to the end of its answer.", [
    "http.request.method",
    "http.route",
    "http.response.status_code"
  ]),
  "http.server.active_requests": gauge("{request}", "Requests that are being answered."),
  "byok.http.connections": gauge("{connection}", "Open connections; MAX_CONNECTIONS is the limit of an instance."),
  "byok.http.connections.limit": gauge("{connection}", "MAX_CONNECTIONS."),
  "byok.http.connections.dropped": counter("{connection}", "Connections dropped at MAX_CONNECTIONS.", []),
  "db.client.operation.duration": histogram(
    "Statements or transactions, with the wait for a connection and with retries.",
    ["db.operation.name", "error.type"]
  ),
  "byok.db.queue.wait.duration": histogram("How long requests waited for a shared statement to start.", ["lane"]),
  "byok.db.batch.size": histogram(
    "Requests that shared one statement.",
    ["db.operation.name"],
    [1, 2, 4, 8, 16, 32, 64, 128, 256, 512],
    "{request}"
  ),
  "byok.db.queue.depth": gauge(
    "{request}",
    "Requests that wait for a statement or run one; DATABASE_QUEUE is the limit of an instance.",
    ["lane"]
  ),
  "byok.db.refusals": counter("{request}", "Requests refused because the queue was full.", ["lane"]),
  "byok.memory.held": gauge("By", "Memory held for requests, and the cache of pools and tokens, which is evictable.", [
    "use"
  ]),
  "byok.memory.budget": gauge("By", "MEMORY_BUDGET, which held memory never exceeds."),
  "byok.crypto.operation.duration": histogram(
    "Keys sealed, opened or verified, and rewrapped.",
    ["operation", "error.type"],
    cryptoSeconds
  ),
  "byok.kek.wraps": gauge("{wrap}", "Wraps reserved for a key-encryption key that is not retired, by all instances.", [
    "kek_id"
  ]),
  "byok.kek.wraps.limit": gauge("{wrap}", "Wraps at which a key refuses to seal."),
  "byok.kek.primary.age": gauge("s", "Time since the key that seals was registered; absent if that is unknown."),
  "byok.keyring.reloads": counter("{reload}", "Attempts to reload the keyring.", ["result"]),
  "byok.certificate.reloads": counter("{reload}", "Attempts to reload the server's certificate.", ["result"]),
  "byok.certificate.expiry.time": gauge(
    "s",
    "When the server's certificate expires, in seconds since 1970; absent over plain HTTP."
  ),
  "byok.audit.unsealed_entries": gauge(
    "{entry}",
    "Audit entries that no checkpoint covers yet, counted as far as 10001."
  ),
  "byok.webhook.waiting_entries": gauge(
    "{entry}",
    "Audit entries whose events the webhook has not taken yet, counted as far as 10001."
  ),
  "byok.webhook.lag": gauge("s", "How long the oldest waiting entry has waited."),
  "byok.webhook.deliveries": counter("{delivery}", "Events posted to the webhook.", ["result"]),
  "byok.ready": gauge("1", "1 if the service is ready, else 0."),
  "byok.router.plans": counter("{plan}", "Plans made for routers.", ["result"]),
  "byok.router.leases": counter("{lease}", "Keys leased to routers, and leases refused.", ["result"]),
  "byok.router.exclusions": counter("{exclusion}", "Reasons why searches passed over credentials.", ["reason"]),
  "byok.router.outcomes": counter("{attempt}", "Reported outcomes of attempts with customers' keys.", [
    "provider",
    "outcome"
  ]),
  "byok.router.parkings": counter("{parking}", "Cooldowns that began or grew after a report of a router.", ["cause"]),
  "byok.router.lost_changes": counter("{change}", "Changes of keys' health or last use that were not stored.", [
    "record"
  ]),
  "byok.forwards": counter("{request}", "Requests of proxies for a key.", ["provider", "result"]),
  "process.cpu.time": counter("s", "Time on a CPU.", ["cpu.mode"]),
  "process.start.time": gauge("s", "When the process started, in seconds since 1970."),
  "process.memory.usage": gauge("By", "Resident memory."),
  "nodejs.eventloop.delay.p50": gauge("s", "Median delay of the event loop in the last ten seconds."),
  "nodejs.eventloop.delay.p99": gauge("s", "99th percentile of the delay of the event loop in the last ten seconds."),
  "nodejs.eventloop.delay.max": gauge("s", "Longest delay of the event loop in the last ten seconds."),
  "byok.build.info": gauge("1", "1, with the version of the program.", ["version"])
} as const satisfies Readonly<Record<string, Family>>

export type FamilyName = keyof typeof families

const unitSuffixes: Readonly<Record<string, string>> = { s: "_seconds", By: "_bytes" }

/** The name of a family in Prometheus, with the suffix for its unit and, for a counter, `_total`. */
export const prometheusName = (name: string, { type, unit }: Family): string =>
  `${name.replaceAll(".", "_")}${unitSuffixes[unit] ?? ""}${type === "counter" ? "_total" : ""}`
