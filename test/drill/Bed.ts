import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { generateKeyring } from "../../src/crypto/keyring/Keyring.ts"
import { faultsAfterwards } from "../faults/faultsAfterwards.ts"
import type { Ledger } from "../support/database/AckChecker.ts"
import { freePort } from "../support/database/listen.ts"
import { firstStart, newDirectory } from "../support/process/firstStart.ts"
import { runByok } from "../support/process/runByok.ts"
import { startService } from "../support/process/ServiceProcess.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import type { Cluster } from "./Cluster.ts"

/** A database with an account, for a service and its clients. */
export interface Bed {
  readonly settings: Record<string, string>
  /** The account's management key. */
  readonly key: string
}

/** Makes a bed on a running database. The service always gets the same port. */
export const newBed = Effect.fnUntraced(function* (
  { url }: Pick<Cluster, "url">,
  other: Readonly<Record<string, string>> = {}
) {
  const file = join(yield* temporaryDirectory, "keyring")
  writeFileSync(file, generateKeyring(new Date()), { mode: 0o600 })
  const settings = { DATABASE_URL: url, BYOK_KEYRING_FILE: file, PORT: String(yield* freePort), ...other }
  const { code, stderr, stdout } = yield* runByok(["account", "create", "--name", "drill", "--json"], settings)
  if (code !== 0) return yield* Effect.die(new Error(stderr))
  const { management_key } = JSON.parse(stdout) as { readonly management_key: string }
  return { settings, key: management_key } satisfies Bed
})

/** Makes a bed on an embedded database. */
export const embeddedBed = Effect.gen(function* () {
  const settings = { ...(yield* newDirectory), PORT: String(yield* freePort) }
  const { key } = yield* Effect.scoped(firstStart(settings))
  return { settings, key } satisfies Bed
})

/** Starts a service again, with other settings if necessary, and runs the ack checker. */
export const checked = ({ key, settings }: Bed, ledger: Ledger, other: Record<string, string> = {}) =>
  Effect.scoped(
    Effect.gen(function* () {
      const all = { ...settings, ...other }
      const { url } = yield* startService(all)
      return yield* faultsAfterwards({ url, key, settings: all }, ledger)
    })
  )
