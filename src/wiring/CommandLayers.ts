import { type Context, Duration, Effect, Layer, type Redacted } from "effect"
import { SecureRandom } from "effect/crypto"
import { generateKeyring } from "../crypto/keyring/Keyring.ts"
import * as CipherLive from "../crypto/CipherLive.ts"
import * as LinkKeysLive from "../crypto/LinkKeysLive.ts"
import { Accounts } from "../service/accounts/Accounts.ts"
import { Audit } from "../service/audit/Audit.ts"
import * as Explanations from "../service/routing/Explanations.ts"
import { KeyCheck } from "../service/credentials/KeyCheck.ts"
import { LeakResponse } from "../service/credentials/LeakResponse.ts"
import * as Credentials from "../service/credentials/Credentials.ts"
import { Links } from "../service/links/Links.ts"
import { Rotation } from "../service/keyring/Rotation.ts"
import * as KeyringLive from "./KeyringLive.ts"
import * as Persistence from "./Persistence.ts"
import * as ServiceSettings from "./ServiceSettings.ts"
import { readSettings, type Settings } from "./Settings.ts"
import { erasingRights, type Rights } from "../sql/schema/inspectSession.ts"
import * as WebhookLive from "./WebhookLive.ts"
import * as TelemetryLive from "./TelemetryLive.ts"
import { userInfo } from "node:os"
import type { AccountId } from "../domain/Identifiers.ts"
import { CurrentPrincipal, type Principal } from "../domain/Principal.ts"

export { KeyringEditor } from "../crypto/keyring/KeyringEditor.ts"

/** Gives commands more time than requests, because they may count or erase every credential. */
const withCommandTimeouts = ({ database, ...settings }: Settings): Settings => ({
  ...settings,
  database: {
    ...database,
    statementTimeout: Duration.max(database.statementTimeout, Duration.minutes(1)),
    deadline: Duration.max(database.deadline, Duration.seconds(65))
  }
})

/** Makes a layer with the settings in the environment, and the timeouts of commands. */
const fromSettings = <A, E>(layer: (settings: Settings) => Layer.Layer<A, E>) =>
  Layer.unwrap(Effect.map(readSettings, (settings) => layer(withCommandTimeouts(settings))))

/** The stores for a command. Commands, unlike the service, refuse a schema newer than this version. */
const stores = (settings: Settings, rights?: Rights) =>
  Layer.merge(Persistence.layer(settings, "command", rights), SecureRandom.layerWebCrypto)

/**
 * Services that need no keyring: accounts, the audit log, and credentials without opening or sealing a key; and
 * `QueueLimits`, which limit an import.
 */
export const withoutKeyring = fromSettings((settings) =>
  Layer.mergeAll(Accounts.layer, Credentials.layerWithoutKeyring, Audit.layer).pipe(
    Layer.provideMerge(ServiceSettings.layer(settings)),
    Layer.provideMerge(stores(settings))
  )
)

/** Accounts, with the rights to delete one. */
export const erasure = fromSettings((settings) => Layer.provide(Accounts.layer, stores(settings, erasingRights)))

/** The webhook's endpoint; needs no database. */
export const webhookEndpoint = fromSettings(WebhookLive.layer)

const keysAndStores = (settings: Settings) => KeyringLive.withStores(settings, "command")

const sealingLayer = (settings: Settings) =>
  Layer.mergeAll(Accounts.layer, Credentials.layer, Explanations.layer, KeyCheck.layer, LeakResponse.layer).pipe(
    Layer.provide(CipherLive.layer),
    Layer.provideMerge(keysAndStores(settings)),
    Layer.provideMerge(ServiceSettings.layer(settings))
  )

/** Services that open or seal keys of credentials; and `QueueLimits`, which limit an import. */
export const sealing = fromSettings(sealingLayer)

/** Rotation of key-encryption keys. Sends its metrics to the collector, if one is set. */
export const rotation = fromSettings((settings) =>
  Rotation.layer.pipe(
    Layer.provide([CipherLive.rewrapper, TelemetryLive.pushedMetrics(settings)]),
    Layer.provide(keysAndStores(settings))
  )
)

/** Links for the owners of keys; seals the private key of each link. */
export const links = fromSettings((settings) =>
  Links.layer.pipe(
    Layer.provide(LinkKeysLive.layer),
    Layer.provide(CipherLive.layer),
    Layer.provide(keysAndStores(settings)),
    Layer.provide(ServiceSettings.layer(settings))
  )
)

/** Explanations of plans, and the status of credentials. Does not verify rows if no keyring is set. */
export const explanations = fromSettings((settings) =>
  Layer.unwrap(
    Effect.match(KeyringLive.sourceOf(settings), {
      onFailure: () =>
        Explanations.layerUnverified.pipe(
          Layer.provide(ServiceSettings.layer(settings)),
          Layer.provideMerge(stores(settings))
        ),
      onSuccess: () => sealingLayer(settings)
    })
  )
)

/** The editor of the keyring file; fails if the keyring is not in a file. */
export const keyringEditor = fromSettings((settings) => KeyringLive.editor(settings, stores(settings)))

/** An editor of the keyring in `text`, which passes the changed one to `keep`. */
export const keyringFilter = (text: Redacted.Redacted, keep: (edited: string) => void) =>
  fromSettings((settings) => Layer.provide(KeyringLive.filter(text, keep), stores(settings)))

/** The text of a new keyring with one key. */
export const newKeyring = Effect.clockWith((clock) =>
  Effect.sync(() => generateKeyring(new Date(clock.currentTimeMillisUnsafe())))
)

const userName = () => {
  try {
    return userInfo().username
  } catch {
    return undefined
  }
}

/** The user running the command as a principal, with the name from the operating system. */
const operator = (account_id?: AccountId): Principal => {
  const user = userName()
  return { kind: "cli", ...(user !== undefined && { user }), ...(account_id !== undefined && { account_id }) }
}

/** Runs an operation with a layer, as the user running the command, who acts in `account_id`, if set. */
export const asOperator =
  <I, E2>(layer: Layer.Layer<I, E2>, account_id?: AccountId) =>
  <A, E, R>(operation: Effect.Effect<A, E, R>) =>
    operation.pipe(
      Effect.provide(layer),
      Effect.provideServiceEffect(
        CurrentPrincipal,
        Effect.sync(() => operator(account_id))
      )
    )

/** Runs an operation of one service with a layer, as the user running the command. */
export const asOperatorWith =
  <I, S, L, E2>(service: Context.Key<I, S>, layer: Layer.Layer<L, E2>, account_id?: AccountId) =>
  <A, E, R>(operation: (service: S) => Effect.Effect<A, E, R>) =>
    asOperator(layer, account_id)(Effect.flatMap(service, operation))

/** Runs an operation on accounts, as the user running the command. */
export const withAccounts = asOperatorWith(Accounts, withoutKeyring)
