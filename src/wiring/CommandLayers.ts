import { Duration, Effect, Layer } from "effect"
import type { SecureRandom } from "effect/crypto"
import { generateKeyring } from "../crypto/keyring/Keyring.ts"
import * as CipherLive from "../crypto/CipherLive.ts"
import type { KeyEncryption } from "../crypto/KeyEncryption.ts"
import * as RewrapperLive from "../crypto/RewrapperLive.ts"
import * as SecureRandomLive from "../crypto/SecureRandomLive.ts"
import * as WrapBudget from "../crypto/WrapBudget.ts"
import type { Parkings } from "../port/Parkings.ts"
import { Accounts } from "../service/Accounts.ts"
import { Audit } from "../service/Audit.ts"
import * as Explanations from "../service/routing/Explanations.ts"
import { LeakResponse } from "../service/LeakResponse.ts"
import { RequestTimeout } from "../port/Deadline.ts"
import { queueLimits, QueueLimits } from "../port/QueueLimits.ts"
import * as Credentials from "../service/Credentials.ts"
import { OperatorCredentials } from "../service/OperatorCredentials.ts"
import { Rotation } from "../service/Rotation.ts"
import * as TimedCrypto from "../telemetry/TimedCrypto.ts"
import * as KeyEncryptionLive from "./KeyEncryptionLive.ts"
import * as KeyringLive from "./KeyringLive.ts"
import * as Persistence from "./Persistence.ts"
import { readSettings, type Settings } from "./Settings.ts"
import * as TelemetryLive from "./TelemetryLive.ts"

/** Commands may take longer than requests: they may count every credential. */
const withCommandTimeouts = ({ database, ...settings }: Settings): Settings => ({
  ...settings,
  database: {
    ...database,
    statementTimeout: Duration.max(database.statementTimeout, Duration.minutes(1)),
    deadline: Duration.max(database.deadline, Duration.seconds(65))
  }
})

const fromSettings = <A, E>(layer: (settings: Settings) => Layer.Layer<A, E>) =>
  Layer.unwrap(Effect.map(readSettings, layer))

/** The stores of a command. An older version must not administer what a newer one has migrated. */
const stores = (settings: Settings) => Persistence.layer(settings, "command")

/** A service on stores and on the keyring or token, which must fit them. */
const withKeys = <A, E>(
  service: Layer.Layer<
    A,
    E,
    KeyEncryption | SecureRandom.SecureRandom | WrapBudget.WrapBudget | Layer.Success<ReturnType<typeof stores>>
  >,
  settings: Settings,
  longer: Settings = withCommandTimeouts(settings)
) =>
  service.pipe(
    Layer.provide(WrapBudget.layer),
    Layer.provide(KeyEncryptionLive.layer(settings)),
    Layer.provide(KeyringLive.layer(settings)),
    Layer.provide(stores(longer)),
    Layer.provide(SecureRandomLive.layer),
    Layer.provide(KeyringLive.validate(settings))
  )

/** Accounts, workspaces and API keys; needs no keyring. */
export const accounts = fromSettings((settings) =>
  Layer.provide(Accounts.layer, [stores(settings), SecureRandomLive.layer])
)

/** `accounts` for deleting one, which may take longer. */
export const erasure = fromSettings((settings) =>
  Layer.provide(Accounts.layer, [stores(withCommandTimeouts(settings)), SecureRandomLive.layer])
)

/** Credentials, as far as no key is opened or sealed; needs no keyring. */
export const credentials = fromSettings((settings) =>
  Layer.provide(OperatorCredentials.layer, stores(withCommandTimeouts(settings)))
)

/** Every operation on credentials. */
export const sealing = fromSettings((settings) => {
  const { deadline, queue } = withCommandTimeouts(settings).database
  const services = Layer.mergeAll(
    Credentials.layer,
    OperatorCredentials.layer,
    Layer.succeed(QueueLimits, queueLimits(queue))
  ).pipe(Layer.provide(Layer.succeed(RequestTimeout, deadline)), Layer.provide(CipherLive.layer))
  return withKeys(services, settings)
})

/** The audit log; needs no keyring. */
export const audit = fromSettings((settings) => Layer.provide(Audit.layer, stores(settings)))

/** Rotation of key-encryption keys, in the keyring or on a token. A collector gets to know how long keys take. */
export const rotation = fromSettings((settings) =>
  withKeys(
    Rotation.layer.pipe(
      Layer.provide(Layer.provide(TimedCrypto.rewrapper, RewrapperLive.layer)),
      Layer.provide(TelemetryLive.pushedMetrics(settings))
    ),
    settings
  )
)

/** The search for a leaked key, with the keyring or token that opens what it compares. */
export const leakResponse = fromSettings((settings) =>
  withKeys(Layer.provide(LeakResponse.layer, CipherLive.layer), settings)
)

/** Explanations of plans. Without a keyring they go by the columns, and say so. */
export const explanations = fromSettings((settings) =>
  KeyringLive.isSet(settings)
    ? withKeys(Layer.provide(Explanations.layer, CipherLive.layer), settings, settings)
    : Layer.provide(Explanations.layerUnverified, stores(settings))
)

/** Keys that are held back from routers; needs no keyring. */
export const parkings = fromSettings((settings): Layer.Layer<Parkings, Layer.Error<ReturnType<typeof stores>>> =>
  stores(withCommandTimeouts(settings))
)

/** Changes to the keyring file. */
export const keyringEditor = fromSettings((settings) =>
  KeyringLive.editor(settings).pipe(
    Layer.provide(stores(withCommandTimeouts(settings))),
    Layer.provide(KeyringLive.validate(settings))
  )
)

/** A keyring with one new key, as text. */
export const newKeyring = Effect.clockWith((clock) =>
  Effect.sync(() => generateKeyring(new Date(clock.currentTimeMillisUnsafe())))
)
