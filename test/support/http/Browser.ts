import { spawn } from "node:child_process"
import { existsSync } from "node:fs"
import { Effect } from "effect"
import { temporaryDirectory } from "../process/temporaryDirectory.ts"

/** The path in Debian's package. */
const executable = "/usr/bin/chromium"

export const isInstalled = existsSync(executable)

const flags = [
  ...["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"],
  ...["--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0"]
]

/** A page in a real browser. */
export interface Page {
  /** The value of an expression in the page, which may be a promise. */
  readonly evaluate: (expression: string) => Effect.Effect<unknown>
  /** Messages on the console, and requests that failed or were blocked. */
  readonly messages: ReadonlyArray<string>
  /** Types a text into the focused element, as a keyboard does. */
  readonly type: (text: string) => Effect.Effect<unknown>
  /** Presses a key that types nothing, such as `Tab` or `Enter`. */
  readonly press: (key: "Tab" | "Enter" | "Space") => Effect.Effect<void>
  /** Sets the width of the window and the colour scheme. */
  readonly look: (width: number, scheme: "light" | "dark") => Effect.Effect<void>
  /** The accessibility tree: role and name of each element that has both, in order. */
  readonly told: Effect.Effect<ReadonlyArray<string>>
}

interface Message {
  readonly id?: number
  readonly method?: string
  readonly params?: unknown
  readonly result?: unknown
}

const endpointOf = (child: ReturnType<typeof spawn>) =>
  Effect.callback<string>((resume) => {
    let said = ""
    child.stderr?.setEncoding("utf8").on("data", (part: string) => {
      said += part
      const [, url] = /DevTools listening on (ws:\S+)/.exec(said) ?? []
      if (url !== undefined) resume(Effect.succeed(url))
    })
    child.once("exit", (code) => resume(Effect.die(new Error(`Chromium ended with ${code}: ${said}`))))
  })

/** Starts Chromium, which ends with the scope. */
const start = Effect.fnUntraced(function* (more: ReadonlyArray<string>) {
  const profile = yield* temporaryDirectory
  const child = yield* Effect.acquireRelease(
    Effect.sync(() =>
      spawn(executable, [...flags, `--user-data-dir=${profile}`, ...more], { stdio: ["ignore", "ignore", "pipe"] })
    ),
    (running) =>
      Effect.callback<true>((resume) => {
        running.once("exit", () => resume(Effect.succeed(true)))
        running.kill()
      })
  )
  return yield* endpointOf(child)
})

/** Speaks the DevTools protocol: sends a command and waits for its result. */
const connect = (endpoint: string, onEvent: (message: Message) => void) =>
  Effect.acquireRelease(
    Effect.callback<{ readonly socket: WebSocket; readonly call: (command: object) => Effect.Effect<unknown> }>(
      (resume) => {
        const socket = new WebSocket(endpoint)
        const waiting = new Map<number, (message: Message) => void>()
        let last = 0
        socket.addEventListener("message", ({ data }) => {
          const message = JSON.parse(String(data)) as Message
          const done = message.id === undefined ? undefined : waiting.get(message.id)
          if (done === undefined) onEvent(message)
          else done(message)
        })
        const call = (command: object) =>
          Effect.callback<unknown>((answer) => {
            const id = ++last
            waiting.set(id, (message) => answer(Effect.succeed(message.result)))
            socket.send(JSON.stringify({ id, ...command }))
          })
        socket.addEventListener("open", () => resume(Effect.succeed({ socket, call })))
      }
    ),
    ({ socket }) => Effect.sync(() => socket.close())
  )

const member = (value: unknown, ...names: ReadonlyArray<string>) =>
  names.reduce<unknown>((found, name) => Reflect.get(Object(found), name), value)

const keys = { Tab: [9, undefined], Enter: [13, "\r"], Space: [32, " "] } as const

/** Opens a page of a given width and waits until it is loaded. */
export const openPage = Effect.fnUntraced(function* (
  url: string,
  width: number,
  scheme: "light" | "dark" = "light",
  more: ReadonlyArray<string> = []
) {
  const messages: Array<string> = []
  let loaded = () => {}
  const load = new Promise<void>((resolve) => (loaded = resolve))
  const { call } = yield* connect(yield* start(more), ({ method, params }) => {
    if (method === "Page.loadEventFired") loaded()
    if (method === "Log.entryAdded") messages.push(String(member(params, "entry", "text")))
    if (method === "Runtime.consoleAPICalled") messages.push(JSON.stringify(member(params, "args")))
    if (method === "Runtime.exceptionThrown") messages.push(JSON.stringify(member(params, "exceptionDetails")))
  })
  const target = yield* call({ method: "Target.createTarget", params: { url: "about:blank" } })
  const targetId = member(target, "targetId")
  const attached = yield* call({ method: "Target.attachToTarget", params: { targetId, flatten: true } })
  const sessionId = member(attached, "sessionId")
  const ask = (method: string, params: object = {}) => call({ sessionId, method, params })
  yield* ask("Log.enable")
  yield* ask("Runtime.enable")
  yield* ask("Page.enable")
  const look: Page["look"] = Effect.fnUntraced(function* (width, scheme) {
    yield* ask("Emulation.setDeviceMetricsOverride", { width, height: 900, deviceScaleFactor: 1, mobile: width < 600 })
    yield* ask("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] })
  })
  yield* look(width, scheme)
  yield* ask("Page.navigate", { url })
  yield* Effect.promise(() => load)
  return {
    messages,
    evaluate: (expression) =>
      Effect.map(ask("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true }), (found) => {
        const thrown = member(found, "exceptionDetails", "exception", "description")
        if (typeof thrown === "string") throw new Error(`${expression}: ${thrown}`)
        return member(found, "result", "value")
      }),
    type: (text) => ask("Input.insertText", { text }),
    press: (key) =>
      Effect.forEach(
        ["rawKeyDown", ...(key === "Enter" || key === "Space" ? ["char"] : []), "keyUp"],
        (type) => {
          const [windowsVirtualKeyCode, text] = keys[key]
          return ask("Input.dispatchKeyEvent", {
            type,
            key: text ?? key,
            code: key,
            windowsVirtualKeyCode,
            ...(type === "char" ? { text } : {})
          })
        },
        { discard: true }
      ),
    look,
    told: Effect.map(ask("Accessibility.getFullAXTree"), (tree) =>
      (member(tree, "nodes") as ReadonlyArray<unknown>).flatMap((node) => {
        const [role, name] = [member(node, "role", "value"), member(node, "name", "value")]
        const isNamed = typeof role === "string" && typeof name === "string" && name !== ""
        return isNamed && member(node, "ignored") !== true && !/^(Static|Inline|Root)/.test(role)
          ? [`${role} ${name}`]
          : []
      })
    )
  } satisfies Page
})
