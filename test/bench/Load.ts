import { execFile, execFileSync } from "node:child_process"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import { seededId } from "./Bed.ts"

const run = promisify(execFile)

export type Operation = "get" | "create"

/** What a load of some seconds has seen; latencies in milliseconds. */
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
  readonly connections: number
  readonly seconds: number
  readonly seeded: number
}

const isInstalled = (program: string) => {
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

const pathsOf = ({ operation, seeded }: Load) =>
  operation === "create"
    ? ["/api/v1/byok"]
    : Array.from({ length: 500 }, () => `/api/v1/byok/${seededId(1 + Math.floor(Math.random() * seeded))}`)

const lua = (load: Load) => `
wrk.method = "${load.operation === "get" ? "GET" : "POST"}"
wrk.headers["Authorization"] = "Bearer ${load.key}"
${load.operation === "get" ? "" : `wrk.headers["Content-Type"] = "application/json"\nwrk.body = [[${body}]]`}
local requests, n = {}, 0
init = function()
  for path in ([[${pathsOf(load).join(" ")}]]):gmatch("%S+") do requests[#requests + 1] = wrk.format(nil, path) end
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

const withWrk = async (load: Load): Promise<Seen> => {
  const directory = mkdtempSync(join(tmpdir(), "byok-load-"))
  const script = join(directory, "load.lua")
  writeFileSync(script, lua(load))
  const { connections, seconds, url } = load
  const { stdout } = await run("wrk", ["-t1", `-c${connections}`, `-d${seconds}s`, "-s", script, url])
  rmSync(directory, { recursive: true })
  return JSON.parse(/SEEN (.*)/.exec(stdout)?.[1] ?? "") as Seen
}

interface AutocannonResult {
  readonly requests: { readonly total: number }
  readonly duration: number
  readonly latency: { readonly p50: number; readonly p99: number }
  readonly errors: number
  readonly non2xx: number
}

const withAutocannon = async (load: Load): Promise<Seen> => {
  const program = fileURLToPath(new URL("./autocannon.js", import.meta.url))
  const options = { ...load, body, paths: pathsOf(load) }
  const { stdout } = await run(process.execPath, [program, JSON.stringify(options)], { maxBuffer: 2 ** 24 })
  const { duration, errors, latency, non2xx, requests } = JSON.parse(stdout) as AutocannonResult
  return { requests: requests.total, seconds: duration, p50: latency.p50, p99: latency.p99, errors: errors + non2xx }
}

/** Puts a load on a server and reports the result. */
export const put = (load: Load): Promise<Seen> => (generator === "wrk" ? withWrk(load) : withAutocannon(load))
