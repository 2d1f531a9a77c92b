import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { freshDatabase } from "../support/database/freshDatabase.ts"
import { addKeys, addToken, attempts, pin, softHsm, withoutSoftHsm } from "../support/keys/SoftHsm.ts"
import { eventually } from "../support/process/eventually.ts"
import { startService } from "../support/process/ServiceProcess.ts"
import { workersOf } from "../support/process/workersOf.ts"

const skipped = withoutSoftHsm ?? (process.platform === "linux" ? undefined : "not on Linux")

describe.skipIf(skipped !== undefined)(
  `a PIN that the token refuses${skipped === undefined ? "" : ` (skipped: ${skipped})`}`,
  () => {
    it.live(
      "is tried once: the process is not restarted, the log says why, and without a process the service ends",
      () =>
        Effect.gen(function* () {
          const hsm = yield* softHsm
          yield* addToken(hsm, "byok", { id: "token-1" })
          const service = yield* startService({
            DATABASE_URL: yield* freshDatabase,
            SOFTHSM2_CONF: hsm.conf,
            BYOK_PKCS11_MODULE: hsm.module,
            BYOK_PKCS11_TOKEN: "byok",
            BYOK_PKCS11_PIN: pin,
            BYOK_PKCS11_KEYS: "token-1",
            BYOK_PROCESSES: "2",
            LOG_LEVEL: "info"
          })
          yield* eventually(
            "both serve",
            Effect.sync(() => service.stderr().includes("Process 2 is serving"))
          )
          yield* addKeys(hsm, "byok", { id: "token-1", setPin: "another-pin-1234" })
          const before = yield* attempts(hsm)
          const given = /is not restarted\. BYOK_PKCS11_PIN: expected the PIN of the token's user/g
          const refused = (times: number) =>
            eventually(
              `${times} are not restarted`,
              Effect.sync(() => service.stderr().match(given)?.length === times)
            )
          const [one = 0, other = 0] = workersOf(service.pid)
          process.kill(one, "SIGKILL")
          yield* refused(1)
          assert.deepStrictEqual(workersOf(service.pid), [other])
          assert.strictEqual((yield* attempts(hsm)) - before, 1)
          process.kill(other, "SIGKILL")
          yield* refused(2)
          assert.strictEqual(yield* service.ended, 1)
          assert.strictEqual((yield* attempts(hsm)) - before, 2)
        }),
      60_000
    )
  }
)
