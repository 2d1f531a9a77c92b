#!/usr/bin/env node
import { readFileSync } from "node:fs"
import { setFlagsFromString } from "node:v8"

const [major = 0, minor = 0] = process.versions.node.split(".").map(Number)
const serves = process.argv.includes("serve")

/** Bounds V8's semi-spaces, in MiB. Unbounded, creates have a better p99, but memory peaks at 400 MiB, not 290. */
const semiSpaceBound = "--max-semi-space-size=16"

/** On Linux, the environment without the variables from `--env-file`: the restarted program reads the file again. */
const originalEnvironment = () => {
  const hasFile = process.execArgv.some((option) => option.startsWith("--env-file"))
  if (!hasFile || process.platform !== "linux") return process.env
  const variables = readFileSync("/proc/self/environ", "utf8").split("\0")
  return Object.fromEntries(variables.filter((variable) => variable !== "").map((variable) => variable.split(/=(.*)/s)))
}

/** Unless a bound is set, restarts this program in the same process with one: V8 reads it only at startup. */
const startBounded = () => {
  const isBounded = [...process.execArgv, process.env["NODE_OPTIONS"] ?? ""].some((option) =>
    option.includes("semi-space")
  )
  if (isBounded || process.execve === undefined || process.platform === "win32") return
  process.execve(
    process.execPath,
    [process.argv0, ...process.execArgv, semiSpaceBound, ...process.argv.slice(1)],
    originalEnvironment()
  )
}

const stop = () => process.exit(0)

if (major > 22 || (major === 22 && minor >= 19)) {
  if (serves) {
    startBounded()
    // Pretenuring allocates objects of requests in the old space once some have survived. Without it, a routed request
    // leaves 0.1 KB there instead of 2 to 5, and the service takes a fifth less CPU and 180 MiB instead of 265.
    setFlagsFromString("--no-allocation-site-pretenuring")
    // By default, V8 lets the heap grow to a multiple of its live objects before it collects: the garbage of requests
    // could then take more memory than MEMORY_BUDGET allows the requests themselves.
    setFlagsFromString("--heap-growing-percent=30")
    // SIGHUP reloads keyring and certificate. Without a listener it would end the service during startup and shutdown.
    process.on("SIGHUP", () => undefined)
    // Process 1 of a container ignores signals without a listener, and the program takes a second to load.
    process.on("SIGTERM", stop).on("SIGINT", stop)
  }
  const { main } = await import("./main.ts")
  main(serves)
  process.off("SIGTERM", stop).off("SIGINT", stop)
} else {
  console.error(`byok needs Node.js 22.19 or later; this is ${process.versions.node}.`)
  process.exitCode = 1
}
