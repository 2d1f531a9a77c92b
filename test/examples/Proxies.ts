import { spawn } from "node:child_process"
import { existsSync, readFileSync, writeFileSync } from "node:fs"
import { createServer, type IncomingHttpHeaders, type ServerResponse } from "node:http"
import { connect } from "node:net"
import { basename, join } from "node:path"
import { Effect } from "effect"
import { freePort, listening } from "../support/database/listen.ts"
import { eventually } from "../support/process/eventually.ts"
import { installedPrograms, Skipped } from "../support/process/installedPrograms.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"

const folder = join(import.meta.dirname, "../../examples")

const nginxModule = "/usr/lib/nginx/modules/ngx_http_js_module.so"

type Change = readonly [text: string, by: string]

/** The example of a proxy: its files, its program, and what a test changes in it. */
interface Example {
  readonly program: "nginx" | "caddy" | "haproxy"
  /** In the folder of examples; the first is the configuration. */
  readonly files: readonly [string, ...ReadonlyArray<string>]
  readonly args: (file: string) => Array<string>
  /** What a machine without root's files, names and ports needs, and a log of requests. */
  readonly changes: (at: {
    readonly upstream: string
    readonly port: number
    readonly directory: string
  }) => ReadonlyArray<Change>
  /** Makes the same log at the level debug. */
  readonly debug: Change | "-d"
  /** Whether the next key serves the same request; otherwise the client's retry. */
  readonly chains: boolean
  /** Whether success is reported. */
  readonly reportsSuccess: boolean
  readonly providers: ReadonlyArray<"openai" | "anthropic">
}

const nginx = {
  program: "nginx",
  args: (file: string) => ["-c", file, "-g", `daemon off; pid ${file}.pid;`],
  debug: ["error_log stderr;", "error_log stderr debug;"],
  reportsSuccess: true
} as const
const nginxChanges = (port: number, directory: string): ReadonlyArray<Change> => [
  ["user www-data byok;", process.getuid?.() === 0 ? "user root root;" : ""],
  ["127.0.0.1:8080", `127.0.0.1:${port}`],
  ["error_log stderr;", `error_log stderr; access_log ${directory}/access.log;`]
]

/** The locations that the README shows, in a server. */
export const shownInReadme: Example = {
  ...nginx,
  files: ["../README.md"],
  changes: ({ port, upstream }) => [
    ["https://api.openai.com", `http://${upstream}`],
    ["listen 8080;", `listen 127.0.0.1:${port};`]
  ],
  chains: false,
  providers: ["openai"]
}

/** The configuration in a document, if a file is one. */
const configurationIn = (text: string) => {
  const [, shown] = /```nginx\n(.*?)```/s.exec(text) ?? []
  if (shown === undefined) return text
  const user = process.getuid?.() === 0 ? "user root root;" : ""
  return `${user} events {} error_log stderr; http { access_log off; server { listen 8080; ${shown} } }`
}

export const examples: Readonly<Record<string, Example>> = {
  "nginx/smallest.conf": {
    ...nginx,
    files: ["nginx/smallest.conf"],
    changes: ({ directory, port, upstream }) => [
      ...nginxChanges(port, directory),
      ["https://api.openai.com", `http://${upstream}`]
    ],
    chains: false,
    providers: ["openai"]
  },
  "nginx/chain.conf": {
    ...nginx,
    files: ["nginx/chain.conf", "nginx/model.js"],
    changes: ({ directory, port, upstream }) => [
      ...nginxChanges(port, directory),
      ["js_path /etc/nginx;", `js_path ${directory};`],
      ["https://$provider", "http://$provider"],
      ["server api.openai.com:443", `server ${upstream}`],
      ["server api.anthropic.com:443", `server ${upstream}`]
    ],
    chains: true,
    providers: ["openai", "anthropic"]
  },
  "caddy/Caddyfile": {
    program: "caddy",
    files: ["caddy/Caddyfile"],
    args: (file) => ["run", "--adapter", "caddyfile", "--config", file],
    changes: ({ port, upstream }) => [
      ["http://127.0.0.1:8080 {", `http://127.0.0.1:${port} {\n\tlog`],
      ["https://api.openai.com", `http://${upstream}`],
      ["https://api.anthropic.com", `http://${upstream}`]
    ],
    debug: ["admin off", "admin off\n\tdebug"],
    chains: false,
    reportsSuccess: false,
    providers: ["openai", "anthropic"]
  },
  "haproxy/haproxy.cfg": {
    program: "haproxy",
    files: ["haproxy/haproxy.cfg", "haproxy/byok.lua"],
    args: (file) => ["-db", "-f", file],
    changes: ({ port, upstream }) => [
      ["127.0.0.1:8080", `127.0.0.1:${port}`],
      ["  user haproxy\n", ""],
      ["  group byok", "  "],
      ["local0 notice", "local0 info"],
      ["mode http", "mode http\n  option httplog"],
      ["api.openai.com:443 ssl verify required ca-file @system-ca sni str(api.openai.com)", upstream],
      ["api.anthropic.com:443 ssl verify required ca-file @system-ca sni str(api.anthropic.com)", upstream]
    ],
    debug: "-d",
    chains: false,
    reportsSuccess: true,
    providers: ["openai", "anthropic"]
  }
}

/** Runs the proxy of an example until the scope closes; answers with its URL and what it prints. */
export const startProxy = Effect.fnUntraced(function* (
  example: Example,
  socket: string,
  upstream: string,
  { debug = false, changes = [] }: { readonly debug?: boolean; readonly changes?: ReadonlyArray<Change> } = {}
) {
  const { files, program } = example
  const paths = yield* installedPrograms([program])
  if (files.includes("nginx/model.js") && !existsSync(nginxModule)) {
    return yield* new Skipped({ why: "libnginx-mod-http-js is not installed" })
  }
  const [port, directory] = [yield* freePort, yield* temporaryDirectory]
  const own = example.changes({ port, upstream, directory })
  const all = [["/run/byok/forward.sock", socket] as const, ...changes, ...own]
  if (debug && example.debug !== "-d") all.push(example.debug)
  const texts = files.map((file) => configurationIn(readFileSync(join(folder, file), "utf8")))
  for (const [text, by] of all) {
    if (!texts.some((one) => one.includes(text))) throw new Error(`${files.join(", ")} has no ${text}`)
    texts.forEach((one, n) => (texts[n] = one.replaceAll(text, by)))
  }
  files.forEach((file, n) => writeFileSync(join(directory, basename(file)), texts[n] ?? ""))
  const args = example.args(join(directory, basename(files[0])))
  if (debug && example.debug === "-d") args.splice(0, 1, "-d")
  let printed = ""
  const child = yield* Effect.acquireRelease(
    Effect.sync(() => {
      const child = spawn(paths[program], args, { cwd: directory, env: { PATH: process.env["PATH"], HOME: directory } })
      for (const stream of [child.stdout, child.stderr]) {
        stream.setEncoding("latin1").on("data", (text: string) => (printed += text))
      }
      return child
    }),
    (child) =>
      Effect.callback((resume: (result: Effect.Effect<void>) => void) => {
        if (child.exitCode !== null) return resume(Effect.void)
        child.once("exit", () => resume(Effect.void)).kill("SIGTERM")
      })
  )
  const answers = Effect.callback<boolean>((resume) => {
    if (child.exitCode !== null) return resume(Effect.die(new Error(`${program} ended: ${printed}`)))
    const socket = connect(port, "127.0.0.1", () => resume(Effect.succeed(true)))
    socket.once("error", () => resume(Effect.succeed(false))).once("connect", () => socket.destroy())
  })
  yield* eventually(`${program} listens`, answers)
  const log = join(directory, "access.log")
  return {
    url: `http://127.0.0.1:${port}`,
    /** All that it has printed and logged so far. */
    printed: () => printed + (existsSync(log) ? readFileSync(log, "utf8") : "")
  }
})

/** What the upstream got. */
export interface Seen {
  readonly url: string
  readonly headers: IncomingHttpHeaders
  readonly rawHeaders: ReadonlyArray<string>
  readonly body: string
}

/** The key in the header of a provider. */
export const keyIn = ({ headers }: Pick<Seen, "headers">) =>
  headers.authorization?.replace("Bearer ", "") ?? String(headers["x-api-key"] ?? "")

/** A provider that answers by the key of the request. */
export const provider = (answer: (key: string, response: ServerResponse, seen: Seen) => void) =>
  Effect.suspend(() => {
    const requests: Array<Seen> = []
    const server = createServer((request, response) => {
      let body = ""
      request.setEncoding("utf8").on("data", (text: string) => (body += text))
      request.once("end", () => {
        const seen = { url: request.url ?? "", headers: request.headers, rawHeaders: request.rawHeaders, body }
        requests.push(seen)
        answer(keyIn(seen), response, seen)
      })
    })
    return Effect.map(listening(server), (port) => ({
      address: `127.0.0.1:${port}`,
      /** Returns the requests since the last call, in order. */
      seen: () => requests.splice(0)
    }))
  })
