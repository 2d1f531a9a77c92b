import { Effect, Layer, ManagedRuntime, Option, Redacted, Schema } from "effect"
import * as Byok from "../../src/wiring/Byok.ts"
import { CurrentPrincipal } from "../../src/domain/Principal.ts"
import { CredentialId } from "../../src/domain/Identifiers.ts"
import { NewCredential } from "../../src/domain/NewCredential.ts"
import { Credentials } from "../../src/port/Credentials.ts"
import { readSettings } from "../../src/wiring/Settings.ts"
import { account_id, type Bed, seededId, sweep } from "./Bed.ts"
import { body } from "./Load.ts"
import { repeatedly } from "./repeatedly.ts"

/** How many creates and gets a program does in a second without HTTP, with 64 in flight. */
export const inProcess = async (bed: Bed, keyring: string, seconds: number) => {
  const layer = Effect.map(readSettings, (settings) =>
    Byok.layerWith({
      ...settings,
      poolLimits: { credentials: 5_000_000, bytes: 1_073_741_824 },
      databaseUrl: Option.some(Redacted.make(bed.url)),
      keyring: Option.some(Redacted.make(keyring))
    })
  )
  const runtime = ManagedRuntime.make(Layer.unwrap(layer))
  const id = CredentialId.make(seededId(1))
  const input = JSON.parse(body) as unknown

  const perSecond = (operation: Effect.Effect<unknown, unknown, Credentials | CurrentPrincipal>) =>
    Effect.map(repeatedly(seconds * 1000, 64, operation), (count) => count / seconds).pipe(
      Effect.provideService(CurrentPrincipal, { kind: "in_process", account_id }),
      Effect.orDie
    )

  const get = Effect.flatMap(Credentials, (credentials) => credentials.get(id))
  const create = Effect.flatMap(Credentials, (credentials) =>
    Effect.flatMap(Effect.orDie(Schema.decodeUnknownEffect(NewCredential)(input)), (decoded) =>
      credentials.create(decoded)
    )
  )
  const result = { get: await runtime.runPromise(perSecond(get)), create: await runtime.runPromise(perSecond(create)) }
  await runtime.dispose()
  await sweep(bed)
  return result
}
