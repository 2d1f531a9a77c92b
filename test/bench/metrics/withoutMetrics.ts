import { registerHooks } from "node:module"

/** What stands in for the parts that measure, by the end of their path. */
const replaced: Readonly<Record<string, (source: string) => string>> = {
  "/src/telemetry/Meters.ts": () => `import { Meter } from "./Meter.ts"; export const layer = Meter.layer`,
  "/src/sql/connection/meteringWith.ts": () =>
    "export const meteringWith = (_meter, retrying) => (query, until) => retrying(query, until)",
  "/src/http/makeNodeServer.ts": (source) => {
    const without = source.replace("routeOf(method, url)", "undefined")
    if (without === source) throw new Error("makeNodeServer.ts asks for the route in another way")
    return without
  }
}

registerHooks({
  load: (url, context, next) => {
    const [, change] = Object.entries(replaced).find(([path]) => url.endsWith(path)) ?? []
    if (change === undefined) return next(url, context)
    const { format, source } = next(url, context)
    return { format, source: change(Buffer.from(source as Uint8Array).toString()), shortCircuit: true }
  }
})
