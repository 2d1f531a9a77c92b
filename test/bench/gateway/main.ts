import { Agent, request } from "node:http"
import { join } from "node:path"
import { text } from "node:stream/consumers"
import { Console, Effect, Option, Redacted } from "effect"
import * as Byok from "../../../src/Byok.ts"
import { generateKeyring } from "../../../src/crypto/keyring/Keyring.ts"
import { CurrentCaller } from "../../../src/domain/CurrentCaller.ts"
import { decodeNewCredential } from "../../../src/domain/NewCredential.ts"
import { Credentials } from "../../../src/port/Credentials.ts"
import { Accounts } from "../../../src/service/accounts/Accounts.ts"
import { Router } from "../../../src/service/routing/Router.ts"
import { settingsFor } from "../../support/database/freshDatabase.ts"
import { startService } from "../../support/process/ServiceProcess.ts"
import { temporaryDirectory } from "../../support/process/temporaryDirectory.ts"
import { requestOf } from "../../support/service/planning.ts"
import { type Bed, onBed } from "../Bed.ts"
import { cpuOfTree } from "../Process.ts"
import { repeatedly } from "../repeatedly.ts"

const milliseconds = 5_000
const keyring = generateKeyring(new Date())

/** Runs `one` over and over, so many at a time, and answers how many there were per CPU second. */
const measure = Effect.fnUntraced(function* <E>(concurrency: number, one: Effect.Effect<void, E>, cpu: () => number) {
  const measured = Effect.fnUntraced(function* (during: number) {
    const before = cpu()
    const done = yield* repeatedly(during, concurrency, one)
    return (done / (cpu() - before)) * 1e6
  })
  yield* measured(milliseconds / 2)
  return Math.round(yield* measured(milliseconds))
})

const ownCpu = () => {
  const { system, user } = process.cpuUsage()
  return system + user
}

const program = Effect.fnUntraced(function* ({ url }: Bed) {
  const { create } = yield* Credentials
  const { account_id, workspace_id } = yield* (yield* Accounts).createAccount("bench")
  for (let n = 0; n < 3; n++) {
    const body = yield* decodeNewCredential({ provider: "azure", key: `sk-${n}-0123456789-0123456789` })
    yield* Effect.provideService(create(body), CurrentCaller, { account_id })
  }
  const asked = requestOf({ account_id, workspace_id })
  const { plan, run } = yield* Router
  const inProcess = Effect.flatMap(plan(asked), (planned) =>
    run(planned, (_step, lease) =>
      lease?.text() === undefined
        ? Effect.die("no lease")
        : Effect.succeed({ outcome: { _tag: "Succeeded" } as const, value: undefined })
    )
  )
  const socketPath = join(yield* temporaryDirectory, "gateway.sock")
  const service = yield* startService({ DATABASE_URL: url, BYOK_KEYRING: keyring, BYOK_GATEWAY_SOCKET: socketPath })
  const agent = new Agent({ keepAlive: true, maxSockets: 64 })
  const headers = { "content-type": "application/json" }
  const ask = (path: string, body: object) =>
    new Promise<{ readonly status: number; readonly data: Record<string, unknown> }>((resolve, reject) => {
      const sent = request({ agent, socketPath, path, method: "POST", headers }, (response) => {
        text(response).then((body) => {
          const { data } = JSON.parse(body) as { data: Record<string, unknown> }
          resolve({ status: response.statusCode ?? 0, data })
        }, reject)
      })
      sent.once("error", reject).end(JSON.stringify(body))
    })
  const overSocket = Effect.promise(async () => {
    const opened = await ask("/v1/routes", asked)
    const { key } = Object(opened.data["next"]) as { readonly key?: string }
    if (opened.status !== 201 || key?.startsWith("sk-") !== true) throw new Error("no key")
    const reported = await ask(`/v1/routes/${String(opened.data["route"])}/attempts/1`, { status: 200 })
    if (reported.data["outcome"] !== "succeeded") throw new Error("not reported")
  })
  for (const concurrency of [1, 64]) {
    const own = yield* measure(concurrency, inProcess, ownCpu)
    const socket = yield* measure(concurrency, overSocket, () => cpuOfTree(service.pid))
    const share = Math.round((socket / own) * 100)
    yield* Console.log(
      `${concurrency} at a time: ${own} in process, ${socket} over the socket per CPU second: ${share} %`
    )
  }
  agent.destroy()
})

onBed("gateway", 0, (bed) =>
  Effect.scoped(
    Effect.provide(
      program(bed),
      Byok.layerWith({ ...settingsFor(bed.url, keyring), keyring: Option.some(Redacted.make(keyring)) })
    )
  )
)
