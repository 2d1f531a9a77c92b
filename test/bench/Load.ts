import { execFile, execFileSync } from "node:child_process"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import { type Bed, seededId } from "./Bed.ts"

const run = promisify(execFile)

export type Operation = "get" | "create" | "list" | "update" | "plan"

/** The result of a load; latencies are in milliseconds. */
export interface Seen {
  readonly requests: number
  readonly seconds: number
  readonly p50: number
  readonly p99: number
  readonly errors: number
}

export interface Load {
  readonly operation: Operation
  readonly url: string
  readonly key: string
  /** Keys to send in turn instead of `key`; only wrk supports this. */
  readonly keys?: ReadonlyArray<string>
  readonly connections: number
  readonly seconds: number
  readonly seeded: number
  /** The credentials to update. */
  readonly ids: ReadonlyArray<string>
  /** The providers to create for, in turn. */
  readonly providers: ReadonlyArray<string>
}

/** A load on the database's account, at the address of one of its servers. */
export const loadOn = (
  { key, providers, seeded, updatable }: Bed,
  url: string,
  given: Pick<Load, "connections" | "operation" | "seconds">
): Load => ({ url, key, seeded, providers, ids: updatable, ...given })

/** A request of a load, sent as JSON. */
export interface Request {
  readonly method: string
  readonly path: string
  readonly body?: string
}

export const isInstalled = (program: string) => {
  try {
    execFileSync("which", [program], { stdio: "ignore" })
    return true
  } catch {
    return false
  }
}

/** `wrk` where it is installed, else autocannon: always a process of its own. */
export const generator = isInstalled("wrk") ? "wrk" : "autocannon"

export const body = JSON.stringify({
  provider: "anthropic",
  key: "sk-bench-0123456789-0123456789-0123456789-AbCd",
  name: "Created under load",
  allowed_models: ["a/model", "another/model"]
})

const models = (model: string) => JSON.stringify({ allowed_models: ["a/model", model] })

/** The requests that clients send in turn. Each update of a credential differs from its previous one. */
const requestsOf = ({
  ids,
  operation,
  providers,
  seeded
}: Pick<Load, "ids" | "operation" | "providers" | "seeded">): ReadonlyArray<Request> => {
  switch (operation) {
    case "create":
      return providers.map((provider) => ({
        ...{ method: "POST", path: "/api/v1/byok" },
        body: JSON.stringify({ ...(JSON.parse(body) as object), provider })
      }))
    case "get":
      return Array.from({ length: 500 }, () => ({
        method: "GET",
        path: `/api/v1/byok/${seededId(1 + Math.floor(Math.random() * seeded))}`
      }))
    case "list":
      return Array.from({ length: Math.min(20, Math.ceil(seeded / 50)) }, (_, page) => ({
        method: "GET",
        path: `/api/v1/byok?offset=${page * 50}`
      }))
    case "plan": {
      const targets = providers.map((provider) => ({ provider }))
      return [{ method: "POST", path: "/api/v1/byok/plan", body: JSON.stringify({ model: "model/1", targets }) }]
    }
    case "update":
      return ["one/model", "other/model"].flatMap((model) =>
        ids.map((id) => ({ method: "PATCH", path: `/api/v1/byok/${id}`, body: models(model) }))
      )
  }
}

const luaOf = ({ body, method, path }: Request) =>
  `{ "${method}", "${path}", ${body === undefined ? "nil" : `[[${body}]]`} }`

/** Requests to send in turn. */
export interface Traffic extends Pick<Load, "connections" | "seconds" | "url"> {
  readonly requests: ReadonlyArray<Request>
  /** Bearer tokens to send in turn; autocannon sends the first only. */
  readonly keys: ReadonlyArray<string>
  readonly headers?: Readonly<Record<string, string>>
}

const lua = ({ headers = {}, keys, requests }: Traffic) => `
wrk.headers["Content-Type"] = "application/json"
${Object.entries(headers)
  .map(([name, value]) => `wrk.headers["${name}"] = "${value}"`)
  .join("\n")}
local requests, n = {}, 0
init = function()
  local given = {
    ${requests.map(luaOf).join(",\n    ")}
  }
  local keys = { "${keys.join('", "')}" }
  for n = 0, math.max(#given, #keys) - 1 do
    wrk.headers["Authorization"] = "Bearer " .. keys[n % #keys + 1]
    local method, path, body = unpack(given[n % #given + 1], 1, 3)
    requests[n + 1] = wrk.format(method, path, nil, body)
  end
end
request = function()
  n = n % #requests + 1
  return requests[n]
end
done = function(summary, latency)
  local e = summary.errors
  io.write(string.format('SEEN {"requests":%d,"seconds":%f,"p50":%f,"p99":%f,"errors":%d}\\n', summary.requests,
    summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    e.connect + e.read + e.write + e.status + e.timeout))
end
`

/** Runs a program that reads a script, and answers with what it prints. */
export const runScript = async (
  program: string,
  script: string,
  args: (path: string) => ReadonlyArray<string>,
  variables: Readonly<Record<string, string>> = {}
) => {
  const directory = mkdtempSync(join(tmpdir(), "byok-load-"))
  const path = join(directory, "script")
  writeFileSync(path, script)
  const { stdout } = await run(program, args(path), { env: { ...process.env, ...variables } })
  rmSync(directory, { recursive: true })
  return stdout
}

const withWrk = async (traffic: Traffic): Promise<Seen> => {
  const { connections, seconds, url } = traffic
  const stdout = await runScript("wrk", lua(traffic), (script) => [
    ...["-t1", `-c${connections}`, `-d${seconds}s`, "-s", script, url]
  ])
  return JSON.parse(/SEEN (.*)/.exec(stdout)?.[1] ?? "") as Seen
}

interface AutocannonResult {
  readonly requests: { readonly total: number }
  readonly duration: number
  readonly latency: { readonly p50: number; readonly p99: number }
  readonly errors: number
  readonly non2xx: number
}

const withAutocannon = async (traffic: Traffic): Promise<Seen> => {
  const program = fileURLToPath(new URL("./autocannon.js", import.meta.url))
  const stdout = await runScript(process.execPath, JSON.stringify(traffic), (path) => [program, path])
  const { duration, errors, latency, non2xx, requests } = JSON.parse(stdout) as AutocannonResult
  return { requests: requests.total, seconds: duration, p50: latency.p50, p99: latency.p99, errors: errors + non2xx }
}

/** Sends requests to a server and reports the result. */
export const send = (traffic: Traffic): Promise<Seen> =>
  generator === "wrk" ? withWrk(traffic) : withAutocannon(traffic)

/** Puts a load on a server and reports the result. */
export const put = ({ connections, key, keys = [key], seconds, url, ...load }: Load): Promise<Seen> =>
  send({ connections, keys, requests: requestsOf(load), seconds, url })
