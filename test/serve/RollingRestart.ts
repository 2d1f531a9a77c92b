import { writeFileSync } from "node:fs"
import { Agent, request } from "node:http"
import { Effect, Exit, Scope } from "effect"
import { minimal } from "../support/http/Bodies.ts"
import { type ServiceProcess, startService } from "../support/process/ServiceProcess.ts"

/**
 * Restarts two instances on one port, one after the other, while clients create and get over new and kept connections, and
 * prints what the clients saw. Runs in a network namespace of its own, whose settings it may change: the first argument
 * is that of net.ipv4.tcp_migrate_req, the second the signal that stops an instance, the third how often each is restarted.
 */
const [, , migrate = "1", signalName = "SIGTERM", rounds = "2"] = process.argv
const { BYOK_KEYRING = "", DATABASE_URL = "", MANAGEMENT_KEY = "" } = process.env
const port = 3000

writeFileSync("/proc/sys/net/ipv4/tcp_migrate_req", migrate)

const failed: Record<string, number> = {}
let answered = 0
let running = true

/** The status of one request, or the code of the error that a client got instead. */
const outcome = (agent: Agent | false, method: "GET" | "POST") =>
  new Promise<string>((resolve) => {
    const headers = { authorization: `Bearer ${MANAGEMENT_KEY}`, "content-type": "application/json" }
    const asked = request({ agent, headers, host: "127.0.0.1", method, path: "/api/v1/byok", port }, (response) =>
      response
        .once("end", () => resolve(String(response.statusCode)))
        .once("error", ({ message }) => resolve(message))
        .resume()
    )
    asked.once("error", (error) => resolve(String(Reflect.get(error, "code"))))
    asked.setTimeout(30_000, () => asked.destroy(Object.assign(new Error(), { code: "no answer" })))
    asked.end(method === "POST" ? JSON.stringify(minimal) : undefined)
  })

const client = async (agent: Agent | false) => {
  for (let count = 0; running; count += 1) {
    const [method, wanted] = count % 40 === 0 ? (["POST", "201"] as const) : (["GET", "200"] as const)
    const found = await outcome(agent, method)
    answered += 1
    const connection = agent === false ? "new" : "kept"
    if (found !== wanted) failed[`${connection} ${found}`] = (failed[`${connection} ${found}`] ?? 0) + 1
  }
}

/** An instance, and the scope at whose end it is stopped if it still runs. */
const start = Effect.gen(function* () {
  const scope = yield* Scope.make()
  const variables = {
    BYOK_KEYRING,
    BYOK_REUSE_PORT: "true",
    DATABASE_URL,
    LOG_LEVEL: "warn",
    MAX_CREDENTIALS: "1000",
    PORT: String(port)
  }
  return { scope, service: yield* Scope.provide(startService(variables), scope) }
})

interface Instance {
  readonly scope: Scope.Closeable
  readonly service: ServiceProcess
}

const restarted = Effect.fnUntraced(function* ({ scope, service }: Instance) {
  yield* service.signal(signalName as NodeJS.Signals)
  yield* service.ended
  yield* Scope.close(scope, Exit.void)
  return yield* start
})

const { warnings } = await Effect.runPromise(
  Effect.gen(function* () {
    let instances: ReadonlyArray<Instance> = [yield* start, yield* start]
    const warnings = instances.map(({ service }) => service.stderr())
    const kept = new Agent({ keepAlive: true })
    const clients = Array.from({ length: 16 }, (_, index) => client(index % 2 === 0 && kept))
    for (let round = 0; round < Number(rounds); round += 1) {
      const [one, other] = instances
      if (one === undefined || other === undefined) break
      instances = [yield* restarted(one), other]
      instances = [yield* restarted(other), ...instances.slice(0, 1)]
    }
    running = false
    yield* Effect.promise(() => Promise.all(clients))
    kept.destroy()
    yield* Effect.forEach(instances, ({ scope }) => Scope.close(scope, Exit.void))
    return { warnings: warnings.join("") }
  })
)

console.log(JSON.stringify({ answered, failed, warnings }))
