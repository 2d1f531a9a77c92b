import { openKey } from "../../src/service/credentials/StoredKey.ts"
import { ConfigProvider, Context, Effect, Layer, Logger, Option, Redacted } from "effect"
import { join } from "node:path"
import * as Byok from "../../src/wiring/Byok.ts"
import { AccountId, CredentialId } from "../../src/domain/Identifiers.ts"
import { Cipher } from "../../src/port/Cipher.ts"
import { CredentialRepository } from "../../src/port/CredentialRepository.ts"
import { Database } from "../../src/sql/connection/Database.ts"
import { contextOf } from "../../src/domain/SealedKey.ts"
import { getOver } from "../support/http/callByok.ts"
import { endpointIn, urlOf } from "../support/database/embedded.ts"
import { faultsOf, type Ledger } from "../support/database/AckChecker.ts"

const together = { concurrency: 16 }

/**
 * Reads over HTTP all that was acknowledged and opens in process all that is stored, beside the service, and returns every contradiction to the ledger.
 */
export const faultsAfterwards = Effect.fnUntraced(function* (
  service: { readonly url: string; readonly key: string; readonly settings: Record<string, string> },
  ledger: Ledger
) {
  const { key, settings, url } = service
  const { BYOK_DATA_DIR: directory, ...others } = settings
  // Two services on one embedded database are refused, unless they reach it by a URL.
  const embedded = (path: string) => ({
    DATABASE_URL: urlOf(endpointIn(path)),
    BYOK_KEYRING_FILE: join(path, "keyring")
  })
  const env = { ...(directory === undefined ? {} : embedded(directory)), ...others }
  const answers = new Map<string, string>()
  yield* Effect.forEach(
    ledger.acked,
    ({ id }) => Effect.map(getOver(url, key, id), ({ body }) => answers.set(id, body)),
    together
  )
  const context = yield* Byok.layer.pipe(
    Layer.provide(ConfigProvider.layer(ConfigProvider.fromEnv({ env }))),
    Layer.provide(Logger.layer([])),
    Layer.build
  )
  const { findSealed } = Context.get(context, CredentialRepository)
  const cipher = Context.get(context, Cipher)
  const { sql } = Context.get(context, Database).reads
  const rows = yield* sql<{ id: string; account_id: string; name: string | null }>`
    SELECT id, account_id, name FROM credentials`
  const found = yield* Effect.forEach(
    rows,
    Effect.fnUntraced(function* ({ account_id, id, name }) {
      const account = AccountId.make(account_id)
      const { credential, sealed } = Option.getOrThrow(yield* findSealed(account, CredentialId.make(id)))
      const opened = openKey(cipher, sealed, contextOf({ ...credential, account_id: account }))
      return { id, name, key: Redacted.value(yield* Effect.fromResult(opened)) }
    }),
    together
  )
  return faultsOf(ledger, found, answers)
})
